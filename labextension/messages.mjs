// What the extension says to people, read from its sources: each message that goes through the translator, and what
// does not but should. `labextension/catalogue.py` makes the catalogue of it. Law: a message is a literal, so none is missed.
import { readFileSync, readdirSync } from 'node:fs';
import { dirname, join, relative, sep } from 'node:path';
import { fileURLToPath } from 'node:url';

import ts from 'typescript';

const HERE = dirname(fileURLToPath(import.meta.url));
const TRANSLATORS = new Set(['trans', '_trans', '__']);
/** Attributes and fields whose text people read. */
const READ = /^(title|label|caption|placeholder|alt|aria-label|body|message|text|sentence)$/;
const WORDS = /\p{L}{2}/u;
/** What names the same in every language. */
const NAMES = /^(Jupyter|JupyterLab|Replkernel)$/;
/** What of a schema JupyterLab translates, with the context that it gives it (`jupyterlab_server.translation_utils`). */
const SCHEMA = [
  [/^(title|description)$/, 'schema'],
  [/^jupyter\.lab\.setting-icon-label$/, 'settings'],
  [/^properties\/.*(title|description)$/, 'settings']
];

/** The messages of all sources, in the order of files and lines, and what is wrong with some. */
export function collect() {
  const messages = [];
  const problems = [];
  for (const name of readdirSync(join(HERE, 'src'), { recursive: true }).sort()) {
    if (/\.tsx?$/.test(name)) {
      const path = join(HERE, 'src', name);
      const source = ts.createSourceFile(path, readFileSync(path, 'utf8'), ts.ScriptTarget.Latest, true);
      ts.forEachChild(source, node => visit(node, source, messages, problems));
    }
  }
  const path = join(HERE, 'schema', 'settings.json');
  ofSchema(JSON.parse(readFileSync(path, 'utf8')), [], (id, context) =>
    messages.push({ id, context, file: 'schema/settings.json', line: 0 })
  );
  return { messages, problems };
}

function visit(node, source, messages, problems) {
  const line = source.getLineAndCharacterOfPosition(node.getStart(source)).line + 1;
  const file = relative(HERE, source.fileName).split(sep).join('/');
  const complain = what => problems.push(`${file}:${line}: ${what}: ${node.getText(source)}`);
  if (ts.isCallExpression(node) && TRANSLATORS.has(lastName(node.expression))) {
    const found = literals(node.arguments[0]);
    found?.forEach(id => messages.push({ id, context: '', file, line }));
    if (found === null && !isPassedOn(node)) {
      complain('a message that is no literal');
    }
  } else if (ts.isJsxText(node) && WORDS.test(node.text)) {
    complain('text that nobody translates');
  } else if (ts.isJsxAttribute(node) || ts.isPropertyAssignment(node)) {
    if (READ.test(node.name.getText(source)) && saysWords(node.initializer)) {
      complain('text that nobody translates');
    }
  }
  ts.forEachChild(node, child => visit(child, source, messages, problems));
}

function lastName(callee) {
  return ts.isPropertyAccessExpression(callee) ? callee.name.text : callee.getText();
}

/** The texts that an expression can be; null where that is not known. */
function literals(node) {
  if (node === undefined) {
    return null;
  }
  if (ts.isStringLiteralLike(node)) {
    return [node.text];
  }
  if (ts.isConditionalExpression(node)) {
    const both = [literals(node.whenTrue), literals(node.whenFalse)];
    return both.includes(null) ? null : both.flat();
  }
  if (ts.isBinaryExpression(node)) {
    const both = [literals(node.left), literals(node.right)];
    return both.some(part => part?.length !== 1) ? null : [both.flat().join('')];
  }
  return null;
}

/** Whether this only hands a message of somebody else on to JupyterLab's translator. */
function isPassedOn(call) {
  return call.arguments[0]?.getText() === 'message' && lastName(call.expression) === '__';
}

function saysWords(node) {
  if (node === undefined) {
    return false;
  }
  const inner = ts.isJsxExpression(node) ? node.expression : node;
  const texts =
    inner !== undefined && ts.isTemplateExpression(inner)
      ? [inner.head.text, ...inner.templateSpans.map(span => span.literal.text)]
      : (literals(inner) ?? []);
  return texts.some(text => WORDS.test(text) && !NAMES.test(text));
}

function ofSchema(value, path, found) {
  for (const [key, inner] of Object.entries(value)) {
    const at = [...path, key];
    if (typeof inner === 'string') {
      const [, context] = SCHEMA.find(([pattern]) => pattern.test(at.join('/'))) ?? [];
      if (context !== undefined) {
        found(inner, context);
      }
    } else if (typeof inner === 'object' && inner !== null && !Array.isArray(inner)) {
      ofSchema(inner, at, found);
    }
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { messages, problems } = collect();
  problems.forEach(problem => console.error(problem));
  console.log(JSON.stringify(messages));
  process.exitCode = problems.length === 0 ? 0 : 1;
}
