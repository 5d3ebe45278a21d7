// Puts the page together.

firstShown().forEach((group) => setShown(group, true));
buildHeader();
buildPicker();
buildRuns();
buildConfiguration();
buildTraining();
buildResults();
buildProblems();
changed();
document.documentElement.dataset.ready = "yes";
