// What the plugins share.
import { Token } from '@lumino/coreutils';

import type { LiveConnection } from './models/connection';

/** What the server tells live; one connection for all that show something of it. */
export const ILive = new Token<LiveConnection>(
  '@replkernel/labextension:ILive',
  'What the server tells live of replicated kernels and their cluster.'
);
export type ILive = LiveConnection;
