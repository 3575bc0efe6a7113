// what a page's slider does; the widget writes it beside its markup, with its id
(() => {
  const figure = document.getElementById("@ID");
  const data = JSON.parse(figure.querySelector("script[type='application/json']").textContent);
  const ranges = [...figure.querySelectorAll("input")];
  const show = () => {
    let place = 0;
    ranges.forEach((range, i) => {
      place = place * data.values[i].length + Number(range.value);
      range.nextElementSibling.textContent = data.values[i][range.value];
      range.setAttribute("aria-valuetext", data.values[i][range.value]);
    });
    figure.querySelector("img").src = "data:image/png;base64," + data.pictures[place];
  };
  ranges.forEach(range => range.addEventListener("input", show));
  figure.querySelector(".fedkit-ranges").hidden = false;
  show();
})();
