// A page without charts: theme, copying, links, paper.
setUpTheme(() => {});
setUpCopyButtons();
addEventListener("hashchange", openTarget);
setUpPrinting(() => {});
openTarget();
