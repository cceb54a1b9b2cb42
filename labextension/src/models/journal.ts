// The kernel's journal of outputs as it answers on the control channel. Pure: reads, judges nothing.
// Law: what does not have the announced type is left out, never guessed.
import type { Output } from './outputs.js';
import { isRecord, readOutputs } from './outputs.js';

/** Asks which executions' outputs no saved notebook holds yet. */
export const OUTPUTS_REQUEST = 'replkernel_outputs_request';
/** Tells that a notebook with the outputs of some executions has been saved. */
export const OUTPUTS_SAVED = 'replkernel_outputs_saved';
/** How many executions are read of one answer at most. */
export const EXECUTIONS_MAX = 1000;

/** One execution and what it has published. */
export interface IExecution {
  readonly msgId: string;
  readonly cellId: string;
  /** SHA-256 of the code that ran, in hex; empty when it is not known. */
  readonly codeDigest: string;
  readonly executionCount: number | null;
  /** Whether it still runs, or waits to. */
  readonly running: boolean;
  /** Wall-clock seconds of its start; null while it waits. */
  readonly started: number | null;
  /** Wall-clock seconds of its end; null while it runs. */
  readonly ended: number | null;
  /** Changes whenever the execution does. */
  readonly version: number;
  readonly outputs: readonly Output[];
}

/** One answer: executions in the order in which they were asked for. */
export interface IJournalPage {
  readonly executions: readonly IExecution[];
  /** Whether there is more behind the newest version named here. */
  readonly more: boolean;
}

function asText(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

function asNumber(value: unknown): number | null {
  return typeof value === 'number' && Number.isFinite(value) ? value : null;
}

function readExecution(value: unknown): IExecution | null {
  if (!isRecord(value)) {
    return null;
  }
  const msgId = asText(value['msg_id']);
  const cellId = asText(value['cell_id']);
  const version = asNumber(value['version']);
  const state = asText(value['state']);
  if (msgId === '' || cellId === '' || version === null || state === '') {
    return null;
  }
  return {
    msgId,
    cellId,
    codeDigest: asText(value['code_digest']),
    executionCount: asNumber(value['execution_count']),
    running: state === 'running' || state === 'queued',
    started: asNumber(value['started']),
    ended: asNumber(value['ended']),
    version,
    outputs: readOutputs(value['outputs'])
  };
}

/** Read the content of an answer; null when it is none, or an error. */
export function readPage(content: unknown): IJournalPage | null {
  if (!isRecord(content) || content['status'] !== 'ok' || !Array.isArray(content['executions'])) {
    return null;
  }
  const executions = content['executions'].slice(0, EXECUTIONS_MAX).map(readExecution);
  return {
    executions: executions.filter(execution => execution !== null),
    more: content['more'] === true
  };
}
