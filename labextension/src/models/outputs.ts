// Outputs as a notebook holds them: one normal form, whether two lists of outputs show the same, and the edits
// that lead from one to the other. Pure: no JupyterLab, no DOM.
// Law: what is in normal form comes out of JupyterLab's own models unchanged, so comparing is honest.

/** One output in normal form: only what nbformat names, texts joined, carriage returns and backspaces obeyed. */
export type Output =
  | { readonly output_type: 'stream'; readonly name: string; readonly text: string }
  | { readonly output_type: 'display_data'; readonly data: Bundle; readonly metadata: Bundle }
  | {
      readonly output_type: 'execute_result';
      readonly data: Bundle;
      readonly metadata: Bundle;
      readonly execution_count: number | null;
    }
  | {
      readonly output_type: 'error';
      readonly ename: string;
      readonly evalue: string;
      readonly traceback: readonly string[];
    };

/** A MIME bundle or the metadata of one. */
export type Bundle = Readonly<Record<string, unknown>>;

/** One step from the outputs that are shown to those that should be. */
export type Edit =
  | { readonly kind: 'append'; readonly index: number; readonly text: string }
  | { readonly kind: 'set'; readonly index: number; readonly output: Output }
  | { readonly kind: 'add'; readonly output: Output }
  | { readonly kind: 'replace'; readonly outputs: readonly Output[] };

/** Whether `value` is an object with names. */
export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** A text, also where nbformat allows a list of lines. */
function joined(value: unknown): string {
  if (Array.isArray(value)) {
    return value.filter(part => typeof part === 'string').join('');
  }
  return typeof value === 'string' ? value : '';
}

/**
 * What a terminal would show of `text`: `\r` goes back to the beginning of the line, `\b` removes a character.
 * The same rules as JupyterLab's output areas, in linear time.
 */
export function settleText(text: string): string {
  if (!/[\r\b]/.test(text)) {
    return text;
  }
  return text.split('\n').map(settleLine).join('\n');
}

function settleLine(source: string): string {
  let line = '';
  let at = 0;
  for (const part of source.split(/([\r\b])/)) {
    if (part === '\r') {
      at = 0;
    } else if (part === '\b') {
      if (at > 0) {
        line = line.slice(0, at - 1) + line.slice(at + 1);
        at -= 1;
      }
    } else {
      line = line.slice(0, at) + part + line.slice(at + part.length);
      at += part.length;
    }
  }
  return line;
}

function bundle(value: unknown): Bundle {
  return isRecord(value) ? value : {};
}

/** One output of a notebook, its text as it is; null for what is none. */
function readOutput(value: unknown): Output | null {
  if (!isRecord(value)) {
    return null;
  }
  switch (value['output_type']) {
    case 'stream':
      return {
        output_type: 'stream',
        name: joined(value['name']) || 'stdout',
        text: joined(value['text'])
      };
    case 'display_data':
    case 'update_display_data':
      return {
        output_type: 'display_data',
        data: bundle(value['data']),
        metadata: bundle(value['metadata'])
      };
    case 'execute_result':
      return {
        output_type: 'execute_result',
        data: bundle(value['data']),
        metadata: bundle(value['metadata']),
        execution_count: typeof value['execution_count'] === 'number' ? value['execution_count'] : null
      };
    case 'error':
      return {
        output_type: 'error',
        ename: joined(value['ename']),
        evalue: joined(value['evalue']),
        traceback: Array.isArray(value['traceback']) ? value['traceback'].map(joined) : []
      };
    default:
      return null;
  }
}

/** The normal form of a list of outputs: neighbouring texts of one stream are one. */
export function readOutputs(values: unknown): Output[] {
  const outputs: Output[] = [];
  for (const value of Array.isArray(values) ? values : []) {
    const output = readOutput(value);
    const last = outputs.at(-1);
    if (output?.output_type === 'stream' && last?.output_type === 'stream' && last.name === output.name) {
      outputs[outputs.length - 1] = { ...last, text: last.text + output.text };
    } else if (output !== null) {
      outputs.push(output);
    }
  }
  return outputs.map(output =>
    output.output_type === 'stream' ? { ...output, text: settleText(output.text) } : output
  );
}

/** Whether two JSON values are equal; a member that is undefined counts as absent. */
export function equal(one: unknown, other: unknown): boolean {
  if (one === other) {
    return true;
  }
  if (Array.isArray(one) && Array.isArray(other)) {
    return one.length === other.length && one.every((value, index) => equal(value, other[index]));
  }
  if (!isRecord(one) || !isRecord(other)) {
    return false;
  }
  return [...new Set([...Object.keys(one), ...Object.keys(other)])].every(key => equal(one[key], other[key]));
}

/** What kind of place an output takes: outputs of one kind may be exchanged where they stand. */
function kind(output: Output): string {
  return output.output_type === 'stream' ? `stream ${output.name}` : output.output_type;
}

/** The steps from `shown` to `wanted`; none when they are equal. What only grew is only added to. */
export function edits(shown: readonly Output[], wanted: readonly Output[]): Edit[] {
  const steps: Edit[] = [];
  for (const [index, output] of wanted.entries()) {
    const before = shown[index];
    if (before === undefined) {
      steps.push({ kind: 'add', output });
    } else if (kind(before) !== kind(output)) {
      return [{ kind: 'replace', outputs: wanted }];
    } else if (!equal(before, output)) {
      steps.push(change(index, before, output));
    }
  }
  return shown.length > wanted.length ? [{ kind: 'replace', outputs: wanted }] : steps;
}

function change(index: number, before: Output, after: Output): Edit {
  const grew =
    before.output_type === 'stream' && after.output_type === 'stream' && after.text.startsWith(before.text);
  return grew
    ? { kind: 'append', index, text: after.text.slice(before.text.length) }
    : { kind: 'set', index, output: after };
}
