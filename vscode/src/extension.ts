// The extension: a follower for each notebook on a replicated kernel, what it tells under cells and in the side bar.
// A driver; the words are in words.ts. Law: other notebooks cost nothing but a look at their kernelspec.
import { readFileSync } from 'node:fs';
import { homedir } from 'node:os';

import * as vscode from 'vscode';

import { Follower } from './follower';
import { commandOf, kernelFiles, pythonIn } from './program';
import type { Known } from './told';
import type { Entry } from './words';
import { badCount, cellInWords, gpusAsked, idOf, standing, treeOf, withGpus } from './words';

const NOTEBOOK = 'jupyter-notebook';
const JUPYTER = 'ms-toolsai.jupyter';
const TICK_MS = 1_000;

/** What VS Code calls when a notebook has been opened. */
export function activate(context: vscode.ExtensionContext): void {
  const followers = new Followers();
  const lines = new CellLines(followers);
  const tree = new ClusterTree(followers);
  context.subscriptions.push(
    followers,
    lines,
    tree,
    vscode.notebooks.registerNotebookCellStatusBarItemProvider(NOTEBOOK, lines),
    vscode.window.registerTreeDataProvider('replkernel.cluster', tree),
    vscode.commands.registerCommand('replkernel.askForGpus', askForGpus),
    vscode.commands.registerCommand('replkernel.openSetting', openSetting),
    vscode.commands.registerCommand('replkernel.refresh', () => {
      followers.restart();
    })
  );
}

/** One follower for each open notebook with a file. */
class Followers implements vscode.Disposable {
  private readonly _byPath = new Map<string, Follower>();
  private readonly _changed = new vscode.EventEmitter<void>();
  readonly onDidChange = this._changed.event;
  private readonly _parts: vscode.Disposable[];

  constructor() {
    this._parts = [
      vscode.workspace.onDidOpenNotebookDocument(notebook => {
        this._follow(notebook);
      }),
      vscode.workspace.onDidChangeNotebookDocument(({ notebook }) => {
        this._follow(notebook);
      }),
      vscode.workspace.onDidCloseNotebookDocument(({ uri }) => {
        this._byPath.get(uri.fsPath)?.dispose();
        this._byPath.delete(uri.fsPath);
        this._changed.fire();
      }),
      vscode.window.onDidChangeActiveNotebookEditor(() => {
        this._changed.fire();
      }),
      vscode.workspace.onDidChangeConfiguration(change => {
        if (change.affectsConfiguration('replkernel.python')) {
          this.restart();
        }
      })
    ];
    vscode.workspace.notebookDocuments.forEach(notebook => {
      this._follow(notebook);
    });
  }

  of(notebook: vscode.NotebookDocument | undefined): Follower | undefined {
    return notebook === undefined ? undefined : this._byPath.get(notebook.uri.fsPath);
  }

  /** Begin again, as after another Python was set. */
  restart(): void {
    this._end();
    vscode.workspace.notebookDocuments.forEach(notebook => {
      this._follow(notebook);
    });
    this._changed.fire();
  }

  private _follow(notebook: vscode.NotebookDocument): void {
    const { uri, notebookType, isUntitled } = notebook;
    if (notebookType !== NOTEBOOK || uri.scheme !== 'file' || isUntitled) {
      return;
    }
    if (!isReplicated(notebook)) {
      if (this._byPath.has(uri.fsPath)) {
        this._byPath.get(uri.fsPath)?.dispose();
        this._byPath.delete(uri.fsPath);
        this._changed.fire();
      }
      return;
    }
    if (!this._byPath.has(uri.fsPath)) {
      const set = vscode.workspace.getConfiguration('replkernel').get<string>('python', '');
      const follower = new Follower(commandOf(set || pythonOf(kernelspecOf(notebook)), uri.fsPath), () => {
        this._changed.fire();
      });
      this._byPath.set(uri.fsPath, follower);
      this._changed.fire();
    }
  }

  private _end(): void {
    this._byPath.forEach(follower => {
      follower.dispose();
    });
    this._byPath.clear();
  }

  dispose(): void {
    this._end();
    this._parts.forEach(part => {
      part.dispose();
    });
    this._changed.dispose();
  }
}

/** Whether a notebook names a kernelspec of this project, whatever else it is called. */
function isReplicated(notebook: vscode.NotebookDocument): boolean {
  return kernelspecOf(notebook).includes('replkernel');
}

function kernelspecOf({ metadata }: vscode.NotebookDocument): string {
  const inner = (metadata['metadata'] ?? metadata) as { kernelspec?: { name?: unknown } };
  const name = inner.kernelspec?.name;
  return typeof name === 'string' ? name : '';
}

/** Return the Python that a kernelspec of this name starts, or nothing. */
function pythonOf(name: string): string {
  for (const file of kernelFiles(name, process.env, homedir(), process.platform)) {
    try {
      return pythonIn(readFileSync(file, 'utf8'));
    } catch {
      continue; // It is not there: Jupyter looks in the next place, too.
    }
  }
  return '';
}

/** The status under each cell. */
class CellLines implements vscode.NotebookCellStatusBarItemProvider, vscode.Disposable {
  private readonly _changed = new vscode.EventEmitter<void>();
  readonly onDidChangeCellStatusBarItems = this._changed.event;
  private readonly _told: vscode.Disposable;
  private _timer: NodeJS.Timeout | undefined;

  constructor(private readonly _followers: Followers) {
    this._told = _followers.onDidChange(() => {
      this._changed.fire();
    });
  }

  provideCellStatusBarItems(cell: vscode.NotebookCell): vscode.NotebookCellStatusBarItem[] {
    const known = this._followers.of(cell.notebook)?.known;
    const run = known?.cells.get(cell.document.uri.toString());
    const items: vscode.NotebookCellStatusBarItem[] = [];
    if (known !== undefined && run !== undefined) {
      const { text, tooltip } = cellInWords(run, known.time(Date.now() / 1000));
      const item = new vscode.NotebookCellStatusBarItem(text, vscode.NotebookCellStatusBarAlignment.Left);
      item.tooltip = tooltip;
      items.push(item);
      if (run.state === 'running') {
        this._tick();
      }
    }
    const asked = gpusAsked(cell.metadata);
    if (asked > 0) {
      const words = `$(circuit-board) asks for ${asked === 1 ? '1 GPU' : `${asked} GPUs`}`;
      const item = new vscode.NotebookCellStatusBarItem(words, vscode.NotebookCellStatusBarAlignment.Right);
      item.command = { command: 'replkernel.askForGpus', title: 'Ask for GPUs', arguments: [cell] };
      items.push(item);
    }
    return items;
  }

  /** Let the time of what runs go on. */
  private _tick(): void {
    clearTimeout(this._timer);
    this._timer = setTimeout(() => {
      this._changed.fire();
    }, TICK_MS);
  }

  dispose(): void {
    clearTimeout(this._timer);
    this._told.dispose();
    this._changed.dispose();
  }
}

/** The side bar: the GPUs and replicas of the notebook in front, or a sentence where there are none. */
class ClusterTree implements vscode.TreeDataProvider<Entry>, vscode.Disposable {
  private readonly _changed = new vscode.EventEmitter<void>();
  readonly onDidChangeTreeData = this._changed.event;
  private readonly _told: vscode.Disposable;
  private readonly _ids = new WeakMap<Entry, string>();

  constructor(private readonly _followers: Followers) {
    this._told = _followers.onDidChange(() => {
      this._stand();
      this._changed.fire();
    });
    this._stand();
  }

  getTreeItem(entry: Entry): vscode.TreeItem {
    const item = new vscode.TreeItem(
      entry.label,
      entry.below.length === 0
        ? vscode.TreeItemCollapsibleState.None
        : vscode.TreeItemCollapsibleState.Expanded
    );
    item.id = this._ids.get(entry) ?? entry.label;
    item.description = entry.detail;
    item.tooltip = `${entry.label}: ${entry.detail}`;
    item.iconPath = new vscode.ThemeIcon(entry.icon);
    return item;
  }

  getChildren(entry?: Entry): Entry[] {
    const known = this._known();
    const all = entry !== undefined ? entry.below : known === undefined ? [] : treeOf(known);
    const above = entry === undefined ? '' : (this._ids.get(entry) ?? '');
    all.forEach((one, index) => {
      this._ids.set(one, idOf(above, index, one));
    });
    return all;
  }

  private _known(): Known | undefined {
    return this._followers.of(vscode.window.activeNotebookEditor?.notebook)?.known;
  }

  /** Have VS Code show the sentence that fits. */
  private _stand(): void {
    const known = this._known();
    const jupyter = vscode.extensions.getExtension(JUPYTER) !== undefined;
    const stands = known === undefined ? 'none' : standing(known, jupyter);
    void vscode.commands.executeCommand('setContext', 'replkernel.standing', stands);
  }

  dispose(): void {
    this._told.dispose();
    this._changed.dispose();
  }
}

/** Show the setting that names the Python; a window on another machine keeps it among that machine's. */
async function openSetting(): Promise<void> {
  const where = vscode.env.remoteName === undefined ? 'openSettings' : 'openRemoteSettings';
  await vscode.commands.executeCommand(`workbench.action.${where}`, { query: '@id:replkernel.python' });
}

/** Ask how many GPUs a cell wants, and write that into its metadata, which VS Code sends with the cell. */
async function askForGpus(given?: vscode.NotebookCell): Promise<void> {
  const editor = vscode.window.activeNotebookEditor;
  const cell = given ?? editor?.notebook.cellAt(editor.selection.start);
  if (cell === undefined) {
    return;
  }
  const text = await vscode.window.showInputBox({
    title: 'GPUs for this cell',
    prompt: 'How many GPUs of one host it needs; 0: none',
    value: `${gpusAsked(cell.metadata)}`,
    validateInput: badCount
  });
  if (text === undefined) {
    return;
  }
  const edit = new vscode.WorkspaceEdit();
  const metadata = withGpus(cell.metadata, Number(text.trim()));
  edit.set(cell.notebook.uri, [vscode.NotebookEdit.updateCellMetadata(cell.index, metadata)]);
  await vscode.workspace.applyEdit(edit);
}
