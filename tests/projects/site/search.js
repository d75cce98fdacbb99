// The site's own search without a browser: the worker of Material for MkDocs, as its page talks to it.
// Usage: node search.js SITE < questions.json. Prints, for each question, the locations in their order.
"use strict";

const fs = require("node:fs");
const path = require("node:path");

const site = process.argv[2];
const workers = path.join(site, "assets", "javascripts", "workers");
const [name] = fs.readdirSync(workers).filter((each) => each.endsWith(".js"));
const SETUP = 0, QUERY = 2;

let receive;
globalThis.self = globalThis;
globalThis.addEventListener = (_type, listener) => { receive = listener; };
const ask = (type, data) => new Promise((resolve) => {
  globalThis.postMessage = (answer) => resolve(answer.data);
  receive({ data: { type, data } });
});

(async () => {
  (0, eval)(fs.readFileSync(path.join(workers, name), "utf-8"));
  const index = JSON.parse(fs.readFileSync(path.join(site, "search", "search_index.json"), "utf-8"));
  await ask(SETUP, { ...index, options: { suggest: false } });
  const found = [];
  for (const question of JSON.parse(fs.readFileSync(0, "utf-8"))) {
    const { items } = await ask(QUERY, question);
    found.push(items.map((page) => page[0].location));
  }
  console.log(JSON.stringify(found));
})();
