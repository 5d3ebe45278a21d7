// Puts the page together.

firstShown().forEach((group) => setShown(group, true));
SECTIONS.forEach(build);
document.getElementById("nav").append(...SECTIONS.filter(({ title }) => title).map(({ id, title }) => el("li", {}, el("a", { href: `#${id}` }, title))));
document.documentElement.dataset.ready = "yes";
if (data.token) listen();
