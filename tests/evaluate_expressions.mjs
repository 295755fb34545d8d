// Evaluate what stands between ${{ and }} with GitHub's own library.
// Reads {entry, contexts, status, templates, conditions} as JSON, one a line; writes {templates: [text], conditions:
// [boolean]} for each.
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

async function answer(request) {
  const { data, Evaluator, Lexer, Parser } = await import(pathToFileURL(request.entry));

  const contexts = JSON.parse(JSON.stringify(request.contexts), data.reviver);
  const status = (name, value) => ({ name, minArgs: 0, maxArgs: 0, call: () => new data.BooleanData(value) });
  const functions = ["success", "failure", "cancelled"].map((name) => status(name, request.status === name));
  functions.push(status("always", true));
  const implementations = new Map(functions.map((info) => [info.name, info]));

  function evaluate(text) {
    const tokens = new Lexer(text).lex().tokens;
    const expression = new Parser(tokens, Object.keys(request.contexts), functions).parse();
    return new Evaluator(expression, contexts, implementations).evaluate();
  }

  const filled = (template) => template.replace(/\$\{\{(.*?)\}\}/gs, (_, text) => evaluate(text).coerceString());

  function holds(condition) {
    const text = condition.trim().replace(/^\$\{\{(.*)\}\}$/s, "$1");
    // A condition that names no function of status holds only while nothing has failed.
    const named = /\b(always|success|failure|cancelled)\s*\(/.test(text);
    const value = evaluate(named ? `!!(${text})` : `success() && !!(${text})`);
    return value.coerceString() === "true";
  }

  return { templates: request.templates.map(filled), conditions: request.conditions.map(holds) };
}

for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(`${JSON.stringify(await answer(JSON.parse(line)))}\n`);
}
