"use strict";
// Comfort only: the page is complete without it. Sorting, copying, and finding an arm in the chart.
(() => {
  const table = document.getElementById("table");
  const body = table.tBodies[0];

  const sort = (head, column) => {
    const down = head.getAttribute("aria-sort") !== "descending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const value = (row) => Number(row.cells[column].dataset.value);
    const rows = [...body.rows].filter((row) => !row.classList.contains("lost"));
    const lost = [...body.rows].filter((row) => row.classList.contains("lost"));
    rows.sort((a, b) => (down ? value(b) - value(a) : value(a) - value(b)));
    body.append(...rows, ...lost);
  };
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    if (!head.dataset.sort) return;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    button.addEventListener("click", () => sort(head, column));
    head.replaceChildren(button);
  });

  const cell = (one) => {
    const parts = [...one.childNodes].map((node) => node.textContent.trim()).filter(Boolean);
    return parts.join(" ").replace(/\s+/g, " ").replace(/\|/g, "\\|");
  };
  const markdown = () => {
    const rows = [...table.rows].map((row) => [...row.cells].filter((one) => !one.classList.contains("drawn")).map(cell));
    const line = (cells) => `| ${[...cells, ...Array(rows[0].length - cells.length).fill("")].join(" | ")} |`;
    return [line(rows[0]), line(rows[0].map(() => "---")), ...rows.slice(1).map(line)].join("\n") + "\n";
  };
  const offer = (after, name, text) => {
    const tools = document.createElement("p");
    tools.className = "tools";
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = name;
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(text());
        button.textContent = "Copied";
      } catch {
        button.textContent = "The browser does not allow copying here";
      }
      setTimeout(() => { button.textContent = name; }, 1600);
    });
    tools.append(button);
    after.after(tools);
  };
  offer(table.parentElement, "Copy as Markdown", markdown);
  // Where a run's page lies in its folder, RUN is that folder; the file itself does not know it.
  let place = "";
  try {
    place = decodeURIComponent(location.pathname);
  } catch { /* a folder whose name is not UTF-8 */ }
  if (location.protocol === "file:" && /^\/[\w./~-]+\/report\.html$/.test(place)) {
    const folder = place.slice(0, place.lastIndexOf("/"));
    for (const one of document.querySelectorAll("pre.run, code.place")) {
      one.textContent = one.textContent.replace(/(^|[\s'"])RUN(?=[/\s'"]|$)/g, (_, before) => before + folder);
    }
  }
  const unbroken = (text) => {
    const option = document.createElement("span");
    option.className = "option";
    option.textContent = text;
    return option;
  };
  for (const one of document.querySelectorAll("pre.copy")) {
    const parts = one.textContent.split(/(--[a-z-]+)/); // a line that ends in "--" is no command
    one.replaceChildren(...parts.map((part, index) => (index % 2 ? unbroken(part) : part)));
    offer(one, "Copy", () => one.textContent);
  }

  const arms = [...document.querySelectorAll(".arm")];
  const focus = (index) => {
    for (const arm of arms) {
      arm.classList.toggle("on", arm.dataset.arm === index);
      arm.parentElement.classList.toggle("focus", index !== null);
    }
  };
  for (const one of [...arms, ...body.rows]) {
    one.addEventListener("pointerenter", () => focus(one.dataset.arm));
    one.addEventListener("pointerleave", () => focus(null));
  }
})();
