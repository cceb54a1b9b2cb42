// What the plugins share.
import { Token } from '@lumino/coreutils';

import type { ISignal } from '@lumino/signaling';

import type { LiveConnection } from './models/connection';
import type { Histories } from './models/histories';
import type { IPreferences } from './models/prefs';

/** What the server tells live; one connection for all that show something of it. */
export const ILive = new Token<LiveConnection>(
  '@replkernel/labextension:ILive',
  'What the server tells live of replicated kernels and their cluster.'
);
export type ILive = LiveConnection;

/** The histories of notebooks, and the ways through them. */
export const IHistories = new Token<Histories>(
  '@replkernel/labextension:IHistories',
  'The points that notebooks on replicated kernels can go back to.'
);
export type IHistories = Histories;

/** What a person has set; `changed` when that is otherwise. */
export interface ISettings {
  readonly value: IPreferences;
  readonly changed: ISignal<ISettings, void>;
}

/** The settings, read once for all that follow them. */
export const ISettings = new Token<ISettings>(
  '@replkernel/labextension:ISettings',
  'What a person has set of what is shown of replicated kernels.'
);
