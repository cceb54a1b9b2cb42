// The panel's list of the points that a notebook can go back to, and what can be done with the one that is chosen.
// One stop for the Tab key: arrows, Home and End choose, Enter goes there. User data reaches the page as text.
import * as React from 'react';

import type { IComparisonDocument, IHistoryDocument } from '../generated/live';
import type { IRow } from '../models/history';
import { differencesInWords, marksOf, rowsOf } from '../models/history';
import type { Way } from '../models/histories';
import type { ITranslate } from '../models/line';

/** What may be done; each rejects with a sentence. */
export interface IHistoryActions {
  travel(way: Way, to?: string): Promise<boolean>;
  mark(name: string, point: string): Promise<void>;
  unmark(name: string): Promise<void>;
  branch(name: string): Promise<void>;
  compare(one: string, other: string): Promise<IComparisonDocument>;
  /** Make a kernel with the state of a point; resolves with its id. */
  fork(point: string): Promise<string>;
}

/** What the section shows. */
export interface IHistoryPart {
  document: IHistoryDocument | null;
  trouble: string;
  actions: IHistoryActions;
}

/** Where keys lead in a list of so many rows; null for those that lead nowhere. */
export function rowAfter(key: string, at: number, count: number): number | null {
  const to: Record<string, number> = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: count - 1 };
  const found = to[key];
  return found === undefined ? null : Math.max(0, Math.min(count - 1, found));
}

const optionId = (row: IRow): string => `jp-replkernel-point-${row.point.replace('.', '-')}`;

/** Scroll a row's list to it, and nothing around: the panel begins with its GPUs. */
function keepInSight(row: HTMLElement): void {
  const list = row.parentElement;
  if (list !== null) {
    const [seen, box] = [list.getBoundingClientRect(), row.getBoundingClientRect()];
    list.scrollTop += Math.min(0, box.top - seen.top) + Math.max(0, box.bottom - seen.bottom);
  }
}

function Row(props: {
  row: IRow;
  chosen: boolean;
  choose: () => void;
  trans: ITranslate;
}): React.JSX.Element {
  const { row, chosen, trans } = props;
  const self = React.useRef<HTMLLIElement>(null);
  React.useEffect(() => {
    if (chosen && self.current !== null) {
      keepInSight(self.current);
    }
  }, [chosen]);
  return (
    <li
      ref={self}
      id={optionId(row)}
      role="option"
      aria-selected={chosen}
      className={row.undone ? 'jp-mod-undone' : ''}
      onClick={props.choose}
    >
      <div className="jp-replkernel-point">
        <span>{row.cell}</span>
        <code>{row.source}</code>
        {row.here && <strong>{trans('now')}</strong>}
        {row.undone && <em>{trans('undone')}</em>}
      </div>
      <div className="jp-replkernel-part">
        {row.changed}
        {row.names.map(name => (
          <span key={name} className="jp-replkernel-badge">
            {name}
          </span>
        ))}
      </div>
    </li>
  );
}

function Points(props: {
  rows: IRow[];
  chosen: string;
  choose: (point: string) => void;
  go: () => void;
  trans: ITranslate;
}): React.JSX.Element {
  const { rows, trans } = props;
  const at = Math.max(
    0,
    rows.findIndex(row => row.point === props.chosen)
  );
  const active = rows[at];
  return (
    <ul
      className="jp-replkernel-points"
      role="listbox"
      tabIndex={0}
      aria-label={trans('Points that this notebook can go back to')}
      aria-activedescendant={active === undefined ? undefined : optionId(active)}
      onKeyDown={event => {
        const next = rowAfter(event.key, at, rows.length);
        const row = next === null ? undefined : rows[next];
        if (row !== undefined) {
          props.choose(row.point);
        } else if (event.key === 'Enter') {
          props.go();
        } else {
          return;
        }
        event.preventDefault();
      }}
    >
      {rows.map(row => (
        <Row
          key={row.point}
          row={row}
          chosen={row === active}
          choose={() => {
            props.choose(row.point);
          }}
          trans={trans}
        />
      ))}
    </ul>
  );
}

interface IPress {
  label: string;
  why?: string;
  title?: string;
  press: () => void;
}

/** Buttons keep the focus when they cannot work, where they say why, and when their labels change. */
function Presses({ buttons, busy }: { buttons: IPress[]; busy: boolean }): React.JSX.Element {
  return (
    <div className="jp-replkernel-buttons">
      {buttons.map(({ label, why = '', title = '', press }, place) => (
        <button
          key={place}
          type="button"
          className="jp-Button jp-mod-styled jp-mod-minimal"
          aria-disabled={busy || why !== ''}
          title={why === '' ? title : why}
          onClick={() => {
            if (!busy && why === '') {
              press();
            }
          }}
        >
          {label}
        </button>
      ))}
    </div>
  );
}

type Act = (action: () => Promise<string[] | string>) => void;

function Naming(props: {
  part: IHistoryPart;
  document: IHistoryDocument;
  row: IRow;
  busy: boolean;
  act: Act;
  trans: ITranslate;
}): React.JSX.Element {
  const { part, row, busy, act, trans } = props;
  const [name, setName] = React.useState('');
  const field = React.useId();
  const why = name.trim() === '' ? trans('Enter a name first') : '';
  const named = (then: Promise<void>, said: string): Promise<string> =>
    then.then(() => {
      setName('');
      return said;
    });
  const begin = async (): Promise<string> => {
    if (!row.here && !(await part.actions.travel('goto', row.point))) {
      return trans('Nothing was undone.');
    }
    const said = trans('From now on, cells go to branch %1.', name.trim());
    return named(part.actions.branch(name.trim()), said);
  };
  return (
    <>
      <label className="jp-replkernel-naming" htmlFor={field}>
        {trans('Name')}
        <input
          id={field}
          className="jp-mod-styled"
          value={name}
          maxLength={64}
          onChange={event => {
            setName(event.target.value);
          }}
        />
      </label>
      <Presses
        busy={busy}
        buttons={[
          {
            label: trans('Mark %1', row.cell),
            why,
            title: trans('Keep this point, under the name above'),
            press: () => {
              act(() => named(part.actions.mark(name.trim(), row.point), trans('%1 is marked.', row.cell)));
            }
          },
          {
            label: row.here ? trans('Branch') : trans('Branch from %1', row.cell),
            why,
            title: row.here
              ? trans('Start a branch with the name above from the current state')
              : trans('Go back to %1, and start a branch with the name above there', row.cell),
            press: () => {
              act(begin);
            }
          },
          ...marksOf(props.document, row.point).map(mark => ({
            label: trans('Unmark %1', mark),
            press: () => {
              act(() => named(part.actions.unmark(mark), trans('The mark is removed.')));
            }
          }))
        ]}
      />
    </>
  );
}

function Branches(props: {
  part: IHistoryPart;
  document: IHistoryDocument;
  busy: boolean;
  act: Act;
  trans: ITranslate;
}): React.JSX.Element | null {
  const { part, document, busy, act, trans } = props;
  const others = Object.keys(document.branches).filter(name => name !== document.branch);
  if (others.length === 0) {
    return null;
  }
  return (
    <>
      <p>{trans('On branch %1', document.branch)}</p>
      <Presses
        busy={busy}
        buttons={others.map(name => ({
          label: trans('Switch to %1', name),
          press: () => {
            act(async () =>
              (await part.actions.travel('switch', name)) ? trans('The notebook is on branch %1.', name) : ''
            );
          }
        }))}
      />
    </>
  );
}

/** The section's buttons for the row that is chosen. */
function Steps(props: {
  part: IHistoryPart;
  document: IHistoryDocument;
  row: IRow;
  busy: boolean;
  act: Act;
  go: () => void;
  trans: ITranslate;
}): React.JSX.Element {
  const { part, document, row, act, trans } = props;
  const { actions } = part;
  const step = (way: Way) => () => {
    act(async () => ((await actions.travel(way)) ? '' : trans('Nothing was undone.')));
  };
  const here = row.here ? trans('The notebook is already there') : '';
  return (
    <Presses
      busy={props.busy}
      buttons={[
        {
          label: trans('Undo'),
          why: document.undo ? '' : trans('No earlier point is kept'),
          title: trans('Undo what the last cell changed'),
          press: step('undo')
        },
        {
          label: trans('Redo'),
          why: document.redo ? '' : trans('Nothing was undone here'),
          press: step('redo')
        },
        { label: trans('Go back to %1', row.cell), why: here, press: props.go },
        {
          label: trans('Compare with now'),
          why: here,
          press: () => {
            act(async () => {
              const lines = differencesInWords(await actions.compare(row.point, document.here), trans);
              return [
                trans('From %1 to now:', row.cell),
                ...(lines.length ? lines : [trans('Nothing differs.')])
              ];
            });
          }
        },
        {
          label: row.here ? trans('Fork') : trans('Fork from %1', row.cell),
          title: row.here
            ? trans('Make another kernel with the current state')
            : trans('Make another kernel with the state after cell %1', row.cell),
          press: () => {
            act(async () => {
              await actions.fork(row.here ? '' : row.point);
              return trans(
                'A new kernel has this state: resume it in the Running panel, under Hibernated Kernels.'
              );
            });
          }
        }
      ]}
    />
  );
}

/** The section. */
export function HistorySection(props: { part: IHistoryPart; trans: ITranslate }): React.JSX.Element {
  const { part, trans } = props;
  const { document } = part;
  const [chosen, setChosen] = React.useState('');
  const [busy, setBusy] = React.useState(false);
  const [said, setSaid] = React.useState<string[]>([]);
  const act: Act = action => {
    setBusy(true);
    setSaid([]);
    action()
      .then(
        text => {
          setSaid(typeof text === 'string' ? [text] : text);
        },
        (error: unknown) => {
          setSaid([error instanceof Error ? error.message : String(error)]);
        }
      )
      .finally(() => {
        setBusy(false);
      });
  };
  const rows = document === null ? [] : rowsOf(document, trans);
  const row = rows.find(one => one.point === chosen) ?? rows.find(one => one.here) ?? rows[0];
  const go = (): void => {
    if (row !== undefined && !row.here && !busy) {
      act(async () =>
        (await part.actions.travel('goto', row.point))
          ? trans('The notebook is back at cell %1. Files and what others have seen stay.', row.cell)
          : trans('Nothing was undone.')
      );
    }
  };
  return (
    <>
      <h3>{trans('History')}</h3>
      {part.trouble !== '' && <p className="jp-replkernel-trouble">{part.trouble}</p>}
      {document !== null && row === undefined && part.trouble === '' && (
        <p>{trans('Nothing has changed yet.')}</p>
      )}
      {document !== null && row !== undefined && (
        <>
          <Points rows={rows} chosen={row.point} choose={setChosen} go={go} trans={trans} />
          <Steps part={part} document={document} row={row} busy={busy} act={act} go={go} trans={trans} />
          <Branches part={part} document={document} busy={busy} act={act} trans={trans} />
          <Naming part={part} document={document} row={row} busy={busy} act={act} trans={trans} />
        </>
      )}
      <div className="jp-replkernel-said" role="status" aria-live="polite">
        {said
          .filter(line => line !== '')
          .map((line, number) => (
            <div key={number}>{line}</div>
          ))}
      </div>
    </>
  );
}
