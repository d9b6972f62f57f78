// Finding, sorting and marking among the outputs; without it they stand in the order of the test file.
(() => {
  const table = document.getElementById("outputs-table");
  if (!table) return;
  const { make, labelled, choice, search, has } = fields;
  const rows = [...table.tBodies];

  const asked = search();
  const arms = [...rows[0].rows].map((row) => row.querySelector(".arm-name").textContent.trim());
  const metrics = [...table.tHead.querySelectorAll("[data-metric]")].map((head) => head.dataset.metric);
  const by = choice(["the test file", ...metrics.flatMap((one) => [`${one}, lowest first`, `${one}, highest first`])]);
  const of = choice(arms);
  const base = choice(["nothing", ...arms]);
  const show = choice(["all rows", "rows where arms differ"]);
  const count = make("output");

  const said = (row, arm) => row.rows[arm].querySelector(".said")?.textContent ?? "";
  const differ = (row) => arms.some((_, arm) => said(row, arm) !== said(row, 0));
  const find = () => {
    let found = 0;
    for (const row of rows) {
      const told = has([...row.querySelectorAll(".given, .references, .said")], asked.value); // not the names of arms
      row.hidden = !(told && (show.value === "0" || differ(row)));
      if (!row.hidden) found += 1;
    }
    count.textContent = `${found} of ${rows.length}`;
  };
  const sort = () => {
    const place = Number(by.value) - 1;
    const metric = Math.floor(place / 2);
    const value = (row) => row.rows[Number(of.value)].querySelectorAll("[data-value]")[metric].dataset.value;
    const sign = place % 2 ? -1 : 1;
    const compared = (a, b) => (a === "") - (b === "") || sign * (Number(a) - Number(b)); // no score comes last
    const order = place < 0 ? rows : [...rows].sort((a, b) => compared(value(a), value(b)));
    table.append(...order);
    of.disabled = place < 0;
  };

  // Which of `ours`, words and the spaces between, are in no longest common subsequence with `theirs`.
  const own = (ours, theirs) => {
    const best = Array.from({ length: ours.length + 1 }, () => new Uint16Array(theirs.length + 1));
    for (let i = ours.length - 1; i >= 0; i -= 1) {
      for (let j = theirs.length - 1; j >= 0; j -= 1) {
        best[i][j] = ours[i] === theirs[j] ? best[i + 1][j + 1] + 1 : Math.max(best[i + 1][j], best[i][j + 1]);
      }
    }
    const found = new Set();
    for (let i = 0, j = 0; i < ours.length;) {
      if (j < theirs.length && ours[i] === theirs[j]) { i += 1; j += 1; }
      else if (j < theirs.length && best[i][j + 1] >= best[i + 1][j]) j += 1;
      else { found.add(i); i += 1; }
    }
    return found;
  };
  const words = (text) => text.split(/(\s+)/).filter(Boolean);
  const mark = () => {
    const against = Number(base.value) - 1;
    for (const row of rows) {
      const theirs = against < 0 ? [] : words(said(row, against));
      arms.forEach((_, arm) => {
        const cell = row.rows[arm].querySelector(".said");
        if (!cell) return;
        const ours = words(cell.textContent);
        const marked = against < 0 || arm === against ? new Set() : own(ours, theirs);
        cell.replaceChildren(...ours.map((word, at) => (marked.has(at) && word.trim() ? make("mark", word) : word)));
      });
    }
  };
  asked.addEventListener("input", find);
  by.addEventListener("change", sort);
  of.addEventListener("change", sort);
  base.addEventListener("change", mark);
  show.addEventListener("change", find);
  of.disabled = true;
  const tools = make("p");
  tools.className = "finder";
  tools.append(labelled("Find", asked), labelled("Show", show), labelled("Mark what is not in", base),
    labelled("In the order of", by), labelled("by", of), count);
  table.parentElement.before(tools);
  find();
})();
