// Finding and sorting among the outputs; without it they stand in the order of the test file.
(() => {
  const table = document.getElementById("outputs-table");
  if (!table) return;
  const rows = [...table.tBodies];
  const make = (name, text) => {
    const one = document.createElement(name);
    if (text !== undefined) one.textContent = text;
    return one;
  };
  const labelled = (name, field) => {
    const label = make("label", `${name} `);
    label.append(field);
    return label;
  };
  const choice = (texts) => {
    const field = make("select");
    texts.forEach((text, index) => {
      const option = make("option", text);
      option.value = String(index);
      field.append(option);
    });
    return field;
  };

  const asked = make("input");
  asked.type = "search";
  const arms = [...rows[0].rows].map((row) => row.querySelector(".arm-name").textContent.trim());
  const metrics = [...table.tHead.querySelectorAll("[data-metric]")].map((head) => head.dataset.metric);
  const by = choice(["the test file", ...metrics.flatMap((one) => [`${one}, lowest first`, `${one}, highest first`])]);
  const of = choice(arms);
  const count = make("output");

  const find = () => {
    const words = asked.value.toLowerCase().split(/\s+/).filter(Boolean);
    let found = 0;
    for (const row of rows) {
      const said = [...row.querySelectorAll(".given, .references, .said")]; // not the names of arms, nor numbers
      const text = said.map((one) => one.textContent.toLowerCase()).join(" ");
      row.hidden = !words.every((word) => text.includes(word));
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
  asked.addEventListener("input", find);
  by.addEventListener("change", sort);
  of.addEventListener("change", sort);
  of.disabled = true;
  const tools = make("p");
  tools.className = "finder";
  tools.append(labelled("Find", asked), labelled("In the order of", by), labelled("by", of), count);
  table.parentElement.before(tools);
  find();
})();
