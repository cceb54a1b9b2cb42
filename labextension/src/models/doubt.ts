// Why what is shown may not hold now, in words: after a mark, and on the banner of a notebook. Pure.
import type { Translate } from './facts';
import type { LiveStore } from './live';

/** Why what is shown may not hold any more; empty when it does. */
export type Doubt = ReturnType<LiveStore['doubt']>;

/** Write it in brackets, for behind a mark. */
export function doubtInWords(doubt: Doubt, trans: Translate): string {
  switch (doubt) {
    case 'no connection':
      return trans('(reconnecting)');
    case 'no answer':
      return trans('(no answer)');
    case '':
      return '';
  }
}

/** Write the banner of a notebook; `busy` tells that one of its cells runs or waits, `safe` that all it has is durable. */
export function bannerInWords(doubt: Doubt, busy: boolean, safe: boolean, trans: Translate): string {
  switch (doubt) {
    case 'no connection':
      return busy
        ? trans('Reconnecting: your cell keeps running')
        : trans('Reconnecting… showing the last known state');
    case 'no answer':
      return safe
        ? trans('This notebook’s kernel does not answer at the moment. Its variables are safe.')
        : trans('This notebook’s kernel does not answer at the moment. Cells marked “durable” are safe.');
    case '':
      return '';
  }
}
