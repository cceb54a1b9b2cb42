// Puts an execution into the model of a cell. Works on models alone, so cells outside the window are served too.
// Law: nothing is touched that is as it should be, so that no notebook becomes dirty for nothing.
import type { ICodeCellModel } from '@jupyterlab/cells';
import type { IOutputAreaModel } from '@jupyterlab/outputarea';

import type { IExecution } from './journal';
import type { Edit, Output } from './outputs';
import { edits, equal, readOutputs } from './outputs';

type OutputJSON = Parameters<IOutputAreaModel['add']>[0];

function toJSON(output: Output): OutputJSON {
  return output as unknown as OutputJSON;
}

function apply(outputs: IOutputAreaModel, edit: Edit): void {
  switch (edit.kind) {
    case 'append': {
      const text = outputs.get(edit.index).streamText;
      text?.insert(text.text.length, edit.text);
      break;
    }
    case 'set':
      outputs.set(edit.index, toJSON(edit.output));
      break;
    case 'add':
      outputs.add(toJSON(edit.output));
      break;
    case 'replace':
      outputs.fromJSON(edit.outputs.map(toJSON));
      break;
  }
}

function showOutputs(cell: ICodeCellModel, wanted: readonly Output[]): void {
  const shown = readOutputs(cell.outputs.toJSON());
  const steps: Edit[] =
    shown.length === cell.outputs.length ? edits(shown, wanted) : [{ kind: 'replace', outputs: wanted }];
  if (steps.length === 0) {
    return;
  }
  if (!cell.trusted) {
    // What is wanted comes from code that the user ran, as if the page had seen it run. What is shown comes from a
    // file, and JupyterLab draws anew, scripts included, what a cell holds as it becomes trusted: so it goes first.
    cell.outputs.clear();
    cell.trusted = true;
    cell.outputs.fromJSON(wanted.map(toJSON));
    return;
  }
  for (const step of steps) {
    apply(cell.outputs, step);
  }
  if (!equal(readOutputs(cell.outputs.toJSON()), wanted)) {
    cell.outputs.fromJSON(wanted.map(toJSON)); // A `clear_output(wait=True)` was pending in the model.
  }
}

/** Make the cell show what the execution has published, its number, and whether it runs. */
export function showExecution(cell: ICodeCellModel, execution: IExecution): void {
  showOutputs(cell, execution.outputs);
  const count = execution.running ? null : execution.executionCount;
  if (cell.executionCount !== count) {
    cell.executionCount = count;
  }
  // After the number: a cell that is given one takes itself for idle.
  const state = execution.running ? 'running' : 'idle';
  if (cell.executionState !== state) {
    cell.executionState = state;
  }
}
