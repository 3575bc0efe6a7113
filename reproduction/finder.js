// what a page's finder does; the widget writes it beside its markup, with its id
(() => {
  const box = document.getElementById("@ID");
  const body = box.querySelector("tbody");
  const rows = [...body.rows];
  const text = new Map(rows.map(row => [row, row.textContent.toLowerCase()]));
  const search = box.querySelector("input");
  const filters = [...box.querySelectorAll("select")];
  const cell = (row, at) => row.cells[at].firstElementChild?.tagName === "DETAILS"
    ? row.cells[at].firstElementChild.firstElementChild.textContent : row.cells[at].textContent;
  for (const filter of filters) {
    const values = new Set(rows.map(row => cell(row, filter.dataset.column)));
    values.forEach(value => filter.add(new Option(value)));
  }
  const passes = (row, but) => filters.every(filter => filter === but || filter.value === "" ||
    cell(row, filter.dataset.column) === filter.value);
  const show = () => {
    const words = search.value.toLowerCase().split(/\s+/);
    const found = rows.filter(row => words.every(word => text.get(row).includes(word)));
    let shown = 0;
    rows.forEach(row => { row.hidden = true; });
    found.filter(row => passes(row)).forEach(row => { row.hidden = false; shown += 1; });
    for (const filter of filters) {
      const left = new Set(found.filter(row => passes(row, filter))
        .map(row => cell(row, filter.dataset.column)));
      for (const option of filter.options) {
        option.disabled = option.value !== "" && !left.has(option.value);
      }
    }
    box.querySelector("output").textContent = `${shown} of ${rows.length}`;
  };
  const key = (row, at) => Number(row.cells[at].dataset.key ?? NaN);
  [...box.querySelectorAll("th")].forEach((head, at) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      box.querySelectorAll("th").forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const numbers = rows.some(row => "key" in row.cells[at].dataset);
      const order = numbers
        ? (a, b) => (isNaN(key(a, at)) - isNaN(key(b, at))) ||
            (down ? key(b, at) - key(a, at) : key(a, at) - key(b, at))
        : (a, b) => (down ? -1 : 1) * cell(a, at).localeCompare(cell(b, at));
      body.append(...rows.sort(order));
    });
  });
  [search, ...filters].forEach(part => part.addEventListener("input", show));
  const asked = new URLSearchParams(location.hash.slice(1));
  search.value = asked.get("find") ?? "";
  filters.forEach(filter => { filter.value = asked.get(filter.name) ?? ""; });
  box.querySelector(".fedkit-finder-controls").hidden = false;
  show();
})();
