// What one cell asks for in its own metadata, which the kernel reads with each execution.
// Law: what else is said there stays as it is.
import type { ICellModel } from '@jupyterlab/cells';

const KEY = 'replkernel';

/** How many GPUs a cell asks for; null: as many as its notebook says; NaN: what it says is not understood. */
export interface ICellRequest {
  gpus: number | null;
  vramGb: number;
}

function own(model: ICellModel): Record<string, unknown> {
  const found: unknown = model.getMetadata(KEY);
  return typeof found === 'object' && found !== null ? (found as Record<string, unknown>) : {};
}

/** Read what a cell asks for. */
export function readCellRequest(model: ICellModel): ICellRequest {
  const { gpus, vram_gb: vramGb } = own(model);
  return {
    gpus: gpus === undefined || gpus === null ? null : typeof gpus === 'number' ? gpus : NaN,
    vramGb: typeof vramGb === 'number' ? vramGb : 0
  };
}

/** Write what a cell asks for. */
export function writeCellRequest(model: ICellModel, request: ICellRequest): void {
  const kept = Object.entries(own(model)).filter(([name]) => name !== 'gpus' && name !== 'vram_gb');
  const metadata: Record<string, unknown> = Object.fromEntries(kept);
  if (request.gpus !== null) {
    metadata['gpus'] = request.gpus;
    if (request.gpus > 0 && request.vramGb > 0) {
      metadata['vram_gb'] = request.vramGb;
    }
  }
  if (Object.keys(metadata).length === 0) {
    model.deleteMetadata(KEY);
  } else {
    model.setMetadata(KEY, metadata);
  }
}
