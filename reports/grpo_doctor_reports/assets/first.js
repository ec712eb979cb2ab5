// Runs before anything is drawn, so that what only a script brings has its room from the start.
document.documentElement.classList.add("scripted");
