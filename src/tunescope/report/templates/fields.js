// The fields of a finder: words to look for, and choices.
const fields = (() => {
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
    field.value = "0";
    return field;
  };
  const search = () => {
    const field = make("input");
    field.type = "search";
    return field;
  };
  const has = (cells, asked) => {
    const text = cells.map((one) => one.textContent.toLowerCase()).join(" ");
    return asked.toLowerCase().split(/\s+/).filter(Boolean).every((word) => text.includes(word));
  };
  return { make, labelled, choice, search, has };
})();
