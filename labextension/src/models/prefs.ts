// What a person has set in JupyterLab's settings, and what holds where nothing is set. Pure.
// Law: what does not have the announced type counts as not set.
import type { Kind } from './news';

/** The settings. */
export interface IPreferences {
  /** Whether lines stand under cells. */
  cellLines: boolean;
  /** Seconds between questions where no WebSocket can be had. */
  pollSeconds: number;
  /** What notifications tell. */
  notify: Readonly<Record<Kind, boolean>>;
}

/** What holds where nothing is set; the same as in `schema/plugin.json`. */
export const DEFAULTS: IPreferences = {
  cellLines: true,
  pollSeconds: 2,
  notify: { executorLost: true, stateRestored: true, quotaReached: true, schedulerUnreachable: true }
};
const POLL_MIN_S = 1;
const POLL_MAX_S = 60;

/** Read what the settings say. */
export function readPreferences(said: Readonly<Record<string, unknown>>): IPreferences {
  const { cellLines, pollSeconds, notify } = said;
  const flag = (value: unknown, otherwise: boolean): boolean =>
    typeof value === 'boolean' ? value : otherwise;
  const chosen = (typeof notify === 'object' && notify !== null ? notify : {}) as Record<string, unknown>;
  const kinds = Object.entries(DEFAULTS.notify).map(([kind, on]) => [kind, flag(chosen[kind], on)] as const);
  return {
    cellLines: flag(cellLines, DEFAULTS.cellLines),
    pollSeconds:
      typeof pollSeconds === 'number' && Number.isFinite(pollSeconds)
        ? Math.min(POLL_MAX_S, Math.max(POLL_MIN_S, pollSeconds))
        : DEFAULTS.pollSeconds,
    notify: Object.fromEntries(kinds) as Record<Kind, boolean>
  };
}
