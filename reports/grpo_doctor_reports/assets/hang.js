setUpTheme(() => {});
setUpCopyButtons();
addEventListener("hashchange", openTarget);
setUpPrinting(() => {});
openTarget();
