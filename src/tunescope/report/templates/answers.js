// Finding among the labels answered; without it all rows stand in the order of the test file.
(() => {
  const table = document.getElementById("answers-table");
  if (!table) return;
  const { make, labelled, choice, search, has } = fields;
  const names = (id) => [...document.getElementById(id).children].map((one) => one.textContent);
  const numbers = (row, key) => row.dataset[key].split(" ").map(Number);
  const rows = [...table.tBodies[0].rows].map((row) => ({
    row,
    label: Number(row.dataset.label),
    right: numbers(row, "right"),
    answered: numbers(row, "answered"),
    shares: numbers(row, "shares"),
  }));
  const arms = names("answers-arms");

  const asked = search();
  const show = choice(["all rows", "rows that are wrong", "rows that all have wrong", "rows that are right", "rows where arms differ"]);
  const of = choice(["any arm", ...arms]);
  const against = choice(["any other", ...arms]);
  const label = choice(["any label", ...names("answers-labels")]);
  const order = choice(["the test file", "the surest errors first"]);
  const count = make("output");

  const chosen = (field) => (field.value === "0" ? arms.map((_, index) => index) : [Number(field.value) - 1]);
  const is = {
    0: () => true,
    1: (one) => chosen(of).some((arm) => !one.right[arm]) && (against.value === "0" || one.right[chosen(against)[0]] === 1),
    2: (one) => one.right.every((right) => !right),
    3: (one) => chosen(of).some((arm) => one.right[arm]) && (against.value === "0" || one.right[chosen(against)[0]] === 0),
    4: (one) => chosen(of).some((a) => chosen(against).some((b) => one.answered[a] !== one.answered[b])),
  };
  const find = () => {
    let found = 0;
    for (const one of rows) {
      const told = has([...one.row.querySelectorAll(".given, .true, .answer b")], asked.value);
      const labels = label.value === "0" || one.label === Number(label.value) - 1;
      one.row.hidden = !(told && labels && is[show.value](one));
      if (!one.row.hidden) found += 1;
    }
    count.textContent = `${found} of ${rows.length}`;
  };
  const error = (one) => Math.max(-1, ...chosen(of).filter((arm) => !one.right[arm]).map((arm) => one.shares[arm]));
  const sort = () => {
    const sorted = order.value === "0" ? rows : [...rows].sort((a, b) => error(b) - error(a));
    table.tBodies[0].append(...sorted.map((one) => one.row));
  };
  asked.addEventListener("input", find);
  for (const field of [show, of, against, label]) field.addEventListener("change", () => { find(); sort(); });
  order.addEventListener("change", sort);
  const tools = make("p");
  tools.className = "finder";
  tools.append(labelled("Find", asked), labelled("Show", show), labelled("of", of), labelled("against", against),
    labelled("with", label), labelled("In the order of", order), count);
  table.parentElement.before(tools);
  find();
})();
