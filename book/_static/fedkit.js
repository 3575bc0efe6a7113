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

// A minus is no hyphen; no line breaks inside an interval, nor between a formula and its comma.
addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll("article .pasted-text").forEach(({childNodes: [text]}) => {
    if (text?.nodeType !== Node.TEXT_NODE) return;
    text.data = text.data.replace(/(?<![\w.)\]])-(?=\d)/g, "−")
      .replace(/\[[^\][a-z]*\]/gi, interval => interval.replaceAll(" ", "\u00a0"));
  });
  document.querySelectorAll("article span.math").forEach(formula => {
    const [before, after] = [formula.previousSibling, formula.nextSibling].map(
      (text, at) => text?.nodeType === Node.TEXT_NODE
        && text.data.match([/[([“‘]+$/, /^[.,;:!?)\]’”%]+/][at])?.[0] || "");
    if (!before && !after) return;
    if (before) formula.previousSibling.data = formula.previousSibling.data.slice(0, -before.length);
    if (after) formula.nextSibling.data = formula.nextSibling.data.slice(after.length);
    const whole = document.createElement("span");
    whole.className = "fedkit-whole";
    formula.replaceWith(whole);
    whole.append(before, formula, after);
  });
});

// A tap enlarges a figure where there is no room for it, and another one brings it back.
addEventListener("click", event => {
  const picture = event.target.closest("article :is(figure, .cell_output) img");
  if (picture && innerWidth <= 720) picture.classList.toggle("fedkit-large");
});
