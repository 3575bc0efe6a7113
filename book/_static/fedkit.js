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

// Names of modules and in signatures break at their dots and brackets; short code does not break.
addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll("dt.sig :not(:has(*)), .page-toc a :not(:has(*))").forEach(name => {
    const parts = name.textContent.split(/(?<=[a-z\d_]{2}[._(])(?=[a-z_])/i);
    name.replaceChildren(...parts.flatMap(part => [part, document.createElement("wbr")]));
  });
  document.querySelectorAll("article code span.pre").forEach(word => {
    word.classList.toggle("fedkit-whole", word.textContent.length < 24);
  });
});

// What goes on to the right has an arrow at its edge, until it is scrolled to its end.  Formulas
// are made smaller before that.
addEventListener("load", async () => {
  await window.MathJax?.startup?.promise;
  document.querySelectorAll("article :is(div.math > mjx-container, span.math)").forEach(formula => {
    const fits = formula.closest("p, li, td, dd, div").clientWidth / formula.scrollWidth;
    if (!(fits < 1)) return;
    const size = parseFloat(getComputedStyle(formula).fontSize);
    formula.style.fontSize = `${Math.max(0.97 * fits, 0.72) * size}px`;
  });
  const boxes = "article :is(figure, .output):has(> img, > a > img), article .cell_output table, "
    + "article .pst-scrollable-table-container, article div.math > mjx-container, article pre";
  const tell = (box, mark) => {
    const [head, all] = [box.querySelector("caption")?.offsetHeight ?? 0, box.offsetHeight];
    const free = box.matches("pre") ? 12 : 2; // of code the rest is padding
    mark.hidden = box.scrollLeft + box.clientWidth >= box.scrollWidth - free;
    mark.style.setProperty("--fedkit-top", `${head + Math.min((all - head) / 2, 120)}px`);
  };
  document.querySelectorAll(boxes).forEach(box => {
    if (box.closest(".fedkit-finder")) return;
    const mark = document.createElement("div");
    mark.className = "fedkit-more";
    mark.setAttribute("aria-hidden", "true");
    (box.closest("div.math") ?? box).before(mark);
    const again = () => tell(box, mark);
    box.addEventListener("scroll", again, {passive: true});
    new ResizeObserver(again).observe(box);
  });
});

// A card with the term, figure, table, formula or theorem that a link leads to.
(() => {
  const shown = "dt, figure, table, div.math, .proof, .citation, .fedkit-numbered";
  const pages = new Map();
  const card = document.createElement("div");
  card.className = "fedkit-card";
  card.setAttribute("role", "tooltip");
  let asked = null, leaving = 0;

  const pageOf = ({pathname, href}) => {
    if (pathname === location.pathname) return document;
    if (!pages.has(pathname)) {
      pages.set(pathname, fetch(href).then(answer => answer.text())
        .then(text => new DOMParser().parseFromString(text, "text/html")));
    }
    return pages.get(pathname);
  };

  const copyOf = (target, link) => {
    const parts = [target];
    while (parts.at(-1).tagName === "DT") parts.push(parts.at(-1).nextElementSibling);
    const copies = parts.map(part => document.importNode(part, true));
    card.replaceChildren(...copies);
    card.querySelectorAll("[id]").forEach(part => part.removeAttribute("id"));
    card.querySelectorAll(".headerlink, script").forEach(part => part.remove());
    for (const [name, where] of [["img[src]", "src"], ["a[href]", "href"]]) {
      card.querySelectorAll(name).forEach(part => {
        part.setAttribute(where, new URL(part.getAttribute(where), link.href));
      });
    }
  };

  const show = async link => {
    asked = link;
    clearTimeout(leaving);
    const page = await Promise.resolve(pageOf(link)).catch(() => null);
    const target = page?.getElementById(decodeURIComponent(link.hash.slice(1)))?.closest(shown);
    if (!target || asked !== link || target.contains(link)) return;
    copyOf(target, link);
    document.body.append(card);
    if (page !== document) await window.MathJax?.typesetPromise?.([card]);
    const at = link.getBoundingClientRect();
    const below = at.bottom + card.offsetHeight + 8 < innerHeight;
    card.style.top = `${scrollY + (below ? at.bottom + 6 : at.top - card.offsetHeight - 6)}px`;
    card.style.left = `${Math.max(8, Math.min(at.left, innerWidth - card.offsetWidth - 24))}px`;
  };
  const leave = () => {
    asked = null;
    leaving = setTimeout(() => card.remove(), 200);
  };

  const links = "article a.reference.internal[href*='#']";
  const linkOf = ({target}) => target.closest?.(links);
  const come = event => {
    if (event.pointerType === "touch") return;
    if (card.contains(event.target)) clearTimeout(leaving);
    else if (linkOf(event) && linkOf(event) !== asked) show(linkOf(event));
  };
  const go = event => (linkOf(event) || card.contains(event.target)) && leave();
  addEventListener("pointerover", come);
  addEventListener("pointerout", go);
  addEventListener("focusin", event => event.target.matches?.(":focus-visible") && come(event));
  addEventListener("focusout", go);
  addEventListener("keydown", ({key}) => key === "Escape" && card.remove());
})();
