// Read workflows and actions as GitHub does, with its own parser; prints {file: [error]} for the files of the command line.
// esbuild bundles it: the parser's modules are written for a bundler and do not run in Node as they are.
import { readFileSync } from "node:fs";
import { basename } from "node:path";
import { convertWorkflowTemplate, NoOperationTraceWriter, parseWorkflow } from "@actions/workflow-parser";
import { parseAction } from "@actions/workflow-parser/actions/action-parser";

async function errorsOf(name) {
  const file = { name, content: readFileSync(name, "utf8") };
  const isAction = /^action\.ya?ml$/.test(basename(name));
  const { context, value } = (isAction ? parseAction : parseWorkflow)(file, new NoOperationTraceWriter());
  const template = value && !isAction ? await convertWorkflowTemplate(context, value) : {};
  const said = context.errors.getErrors().map((error) => error.message);
  return [...new Set([...said, ...(template.errors ?? []).map((error) => error.Message)])];
}

async function main(names) {
  const found = await Promise.all(names.map(async (name) => [name, await errorsOf(name)]));
  process.stdout.write(JSON.stringify(Object.fromEntries(found)));
}

main(process.argv.slice(2));
