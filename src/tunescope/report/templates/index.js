// Sorting and finding among runs; without it they stand by their folders.
(() => {
  const table = document.getElementById("runs");
  const body = table.tBodies[0];
  const { make, labelled, search, has } = fields;
  const sort = (head, column) => {
    const down = head.getAttribute("aria-sort") !== "descending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const lost = [...body.rows].filter((row) => row.classList.contains("lost"));
    const rows = [...body.rows].filter((row) => !row.classList.contains("lost"));
    const value = (row) => (head.dataset.sort === "number" ? row.cells[column].dataset.value : row.cells[column].textContent.trim());
    const compared = (a, b) => (head.dataset.sort === "number" ? Number(a) - Number(b) : a.localeCompare(b));
    rows.sort((a, b) => (value(a) === "") - (value(b) === "") || (down ? -1 : 1) * compared(value(a), value(b)));
    body.append(...rows, ...lost);
  };
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = make("button", head.textContent);
    button.type = "button";
    button.addEventListener("click", () => sort(head, column));
    head.replaceChildren(button);
  });
  const asked = search();
  const count = make("output");
  const find = () => {
    let found = 0;
    for (const row of body.rows) {
      row.hidden = !has([...row.cells], asked.value);
      if (!row.hidden) found += 1;
    }
    count.textContent = `${found} of ${body.rows.length}`;
  };
  asked.addEventListener("input", find);
  const tools = make("p");
  tools.className = "finder";
  tools.append(labelled("Find", asked), count);
  table.parentElement.before(tools);
  find();
})();
