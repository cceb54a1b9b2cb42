// What one cell asks for in its own metadata, which the kernel reads with each execution.
// Law: what else is said there stays as it is.
import type { ICellModel } from '@jupyterlab/cells';

import { gpusWanted } from './cluster.js';
import type { ITranslate } from './line';

const KEY = 'replkernel';
const OWN = new Set(['gpus', 'vram_gb']);

/** How many GPUs a cell asks for; null: as many as its notebook says; NaN: what it says is not understood. */
export interface ICellRequest {
  gpus: number | null;
  vramGb: number;
}

function own(model: ICellModel): Record<string, unknown> {
  const found: unknown = model.getMetadata(KEY);
  return typeof found === 'object' && found !== null ? (found as Record<string, unknown>) : {};
}

const LINES_LOOKED_AT = 16;
const WRAPPERS = /^(%%time|%%timeit|%%capture|%%prun)\b/;

/** Return the `%%gpu` line at a cell's beginning; empty where it begins otherwise. */
export function gpuLine(source: string): string {
  for (const line of source.split('\n', LINES_LOOKED_AT)) {
    const said = line.trim();
    if (/^%%gpu(\s|$)/.test(said)) {
      return said;
    }
    if (said !== '' && !said.startsWith('#') && !WRAPPERS.test(said)) {
      return '';
    }
  }
  return '';
}

/** Write what a cell asks for itself, as its badge; empty where it asks for what its notebook does. */
export function requestInWords(request: ICellRequest, written: string, trans: ITranslate): string {
  if (request.gpus === null) {
    return written;
  }
  return Number.isNaN(request.gpus)
    ? trans('GPU request not understood')
    : gpusWanted(request.gpus, request.vramGb, trans);
}

/** Read what a cell asks for. */
export function readCellRequest(model: ICellModel): ICellRequest {
  const { gpus, vram_gb: vramGb } = own(model);
  return {
    gpus: gpus === undefined || gpus === null ? null : typeof gpus === 'number' ? gpus : NaN,
    vramGb: typeof vramGb === 'number' ? vramGb : 0
  };
}

/** Whether others may compute on what is asked for: a part of one GPU, or one with a bound of its memory. */
function canShare({ gpus, vramGb }: ICellRequest): boolean {
  return gpus !== null && gpus > 0 && (gpus < 1 || (gpus === 1 && vramGb > 0));
}

/** Write what a cell asks for. */
export function writeCellRequest(model: ICellModel, request: ICellRequest): void {
  const kept = Object.entries(own(model)).filter(([name]) => !OWN.has(name));
  const metadata: Record<string, unknown> = Object.fromEntries(kept);
  if (request.gpus !== null) {
    metadata['gpus'] = request.gpus;
    if (request.gpus > 0 && request.vramGb > 0) {
      metadata['vram_gb'] = request.vramGb;
    }
  }
  if (!canShare(request)) {
    delete metadata['share'];
  }
  if (Object.keys(metadata).length === 0) {
    model.deleteMetadata(KEY);
  } else {
    model.setMetadata(KEY, metadata);
  }
}
