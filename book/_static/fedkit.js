// Print what is folded, too, and fold it again afterwards.
(() => {
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("article details:not([open])")]
      .filter(fold => !fold.closest(".fedkit-finder"));
    opened.forEach(fold => { fold.open = true; });
  });
  addEventListener("afterprint", () => {
    opened.forEach(fold => { fold.open = false; });
  });
})();
