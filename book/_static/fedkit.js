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

// A tap, or Enter, enlarges a figure where there is no room for it; another one brings it back.
(() => {
  const pictures = "article :is(figure, .cell_output) img";
  const narrow = matchMedia("(max-width: 720px)");
  const enlarge = ({target}) => {
    if (narrow.matches) target.closest?.(pictures)?.classList.toggle("fedkit-large");
  };
  const reach = () => document.querySelectorAll(pictures).forEach(
    picture => narrow.matches
      ? picture.setAttribute("tabindex", "0") : picture.removeAttribute("tabindex"));
  addEventListener("click", enlarge);
  addEventListener("keydown", event => event.key === "Enter" && enlarge(event));
  addEventListener("DOMContentLoaded", reach);
  narrow.addEventListener("change", reach);
})();
