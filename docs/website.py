"""What `make site` adds to the pages of docs/; MkDocs calls the functions whose names begin with `on_` (mkdocs.yml).

README.md is the front page. A file of the repository that a page links to becomes a page below repository/: Markdown as
it is, other text as a block of code, a folder as a list of its files. The notebook is shown as it ran last
(build/quickstart.ipynb, which `make site` makes), or as it is stored.
"""

from __future__ import annotations

import json
import posixpath
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FRONT, NOTEBOOK, SHOWN = "README.md", "examples/quickstart.ipynb", ROOT / "build/quickstart.ipynb"
LINK = re.compile(r"(?P<text>!?\[[^]]*\])\((?P<target>[^)#\s]*)(?P<heading>#[^)\s]*)?\)")
CODE = re.compile(r"(^```.*?^```$|^    .*?$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
MARKDOWN: dict[str, str] = {}  # of every page of the site, which lies beside its HTML
LANGUAGES = {".py": "python", ".yaml": "yaml", ".toml": "toml", ".sh": "bash", ".json": "json"}


def slug(text: str, separator: str = "-") -> str:
    """The anchor of a heading, as forges make it, and as tests/test_docs.py looks for it."""
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", separator)


def place_of(path: str) -> str:
    """Where a file of the repository stands in the site's sources; "" where it is not a page or picture of it."""
    if path in (FRONT, NOTEBOOK):
        return {FRONT: "index.md", NOTEBOOK: "quickstart.md"}[path]
    if path.startswith("docs/") and not path.endswith((".py", ".json")):
        return path.removeprefix("docs/")
    return f"repository/{path}" if path.endswith(".md") else f"repository/{path}.md"


def linked(text: str, path: str) -> tuple[str, set[str]]:
    """Markdown of the file ``path`` of the repository with links for the site, and the files that it links to."""
    here, found = posixpath.dirname(place_of(path)), set()

    def link(match: re.Match[str]) -> str:
        target = match["target"]
        if not target or re.match(r"[a-z]+:", target):
            return match[0]
        file = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        if not (ROOT / file).exists():
            return match[0]  # MkDocs reports it
        found.add(file)
        return f"{match['text']}({posixpath.relpath(place_of(file), here or '.')}{match['heading'] or ''})"

    # Code is split off: what looks like a link there is none.
    parts = CODE.split(text)
    return "".join(part if number % 2 else LINK.sub(link, part) for number, part in enumerate(parts)), found


def page_of(path: str) -> str:
    """A file of the repository as Markdown."""
    file = ROOT / path
    if file.is_dir():
        names = sorted(one.name for one in file.iterdir() if not one.name.startswith((".", "__")))
        return f"# {path}\n\n" + "".join(f"- [{name}]({file.name}/{name})\n" for name in names)
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".md":
        return text
    return f"# {path}\n\n````{LANGUAGES.get(file.suffix, 'text')}\n{text.rstrip()}\n````\n"


def on_config(config: Any) -> Any:
    """The version in the header, and anchors as forges make them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    config.site_name = f"quatro {project['version']}"
    if url := project.get("urls", {}).get("PROJECT_URL"):
        config.repo_url = url
    config.mdx_configs.setdefault("toc", {})["slugify"] = slug
    return config


def on_files(files: Any, config: Any) -> Any:
    """The pages that do not lie in docs/: the front page, the notebook, and what is linked to."""
    from mkdocs.structure.files import File

    sys.path.insert(0, str(ROOT / "docs"))
    import notebook

    def add(uri: str, **content: Any) -> None:
        files.append(File.generated(config, uri, **content))

    ran = json.loads(SHOWN.read_text(encoding="utf-8")) if SHOWN.exists() else notebook.stored()
    text, pictures = notebook.page(ran)
    add("quickstart.md", content=text)
    MARKDOWN["quickstart.md"] = re.sub(r"<(progress|img)[^>]*>(</progress>)?", "", text)
    for name, content in pictures.items():
        add(f"images/{name}", content=content)
    waiting = [FRONT, *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
    done = {NOTEBOOK}
    while waiting:
        path = waiting.pop()
        if path in done:
            continue
        done.add(path)
        is_own = path.startswith("docs/") and not path.endswith((".py", ".json"))
        if is_own and not path.endswith(".md"):
            continue  # a picture or a table, which MkDocs copies
        text, targets = linked(page_of(path), path)
        MARKDOWN[place_of(path)] = text
        waiting += targets
        if not is_own:
            add(place_of(path), content=text)
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links of the pages of docs/ to files of the repository lead to the pages of these."""
    return MARKDOWN[page.file.src_uri] if page.file.generated_by is None else markdown


def summary_of(text: str) -> str:
    """The first sentence of a page; the title of one that begins with a table or code."""
    body = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    title = re.search(r"^# (.*)$", body, re.MULTILINE)
    for block in re.split(r"\n\s*\n", body):
        if re.match(r"[\w*`(\[]", block) and not block.startswith("# "):
            plain = re.sub(r"!?\[([^]]*)\]\([^)]*\)|\*\*", r"\1", " ".join(block.split()))
            return re.split(r"(?<=[.:])\s(?=[A-Z`])", plain, maxsplit=1)[0].rstrip(".:")
    return title[1] if title else ""


def llms_text(name: str, about: str, uris: list[str]) -> str:
    """llms.txt: one line for each of these pages."""
    lines = [f"# {name}", "", f"> {about}", "", "Each page is here as Markdown, and as .html under the same name.", ""]
    for uri in uris:
        title = re.search(r"^# (.*)$", MARKDOWN[uri], re.MULTILINE)
        lines.append(f"- [{title[1] if title else uri}]({uri}): {summary_of(MARKDOWN[uri])}.")
    return "\n".join([*lines, ""])


def on_post_build(config: Any) -> None:
    """llms.txt, and the Markdown of every page beside its HTML."""
    site = Path(config.site_dir)
    for uri, text in MARKDOWN.items():
        (site / uri).write_text(text, encoding="utf-8")
    uris = list(dict.fromkeys(re.findall(r"[\w-]+\.md", json.dumps(config.nav))))
    (site / "llms.txt").write_text(llms_text(config.site_name, config.site_description, uris), encoding="utf-8")
