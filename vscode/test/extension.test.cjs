// The extension in a stub of VS Code, fed by a process that plays `replkernel follow`.
const assert = require('node:assert/strict');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const test = require('node:test');

const { events, state, vscode } = require('./vscode.cjs');
const { activate } = require('../out/extension.js');
const { idOf } = require('../out/words.js');

const place = fs.mkdtempSync(path.join(os.tmpdir(), 'replkernel-vscode-'));
const program = path.join(place, 'follow');
const ended = path.join(place, 'ended');
test.after(() => fs.rmSync(place, { recursive: true, force: true }));

/** A program that tells these lines, and notes when its reader has gone; who has a line may end it at once. */
function tells(...lines) {
    const text = JSON.stringify(lines.map(line => JSON.stringify(line)).join('\n') + '\n');
    const script = `#!${process.execPath}
process.on('SIGTERM', () => undefined);
process.stdin.resume().on('end', () => { require('fs').writeFileSync(${JSON.stringify(ended)}, process.argv.join(' ')); process.exit(0); });
process.stdout.write(${text});
`;
    fs.writeFileSync(program, script, { mode: 0o700 });
}

function notebook(name, kernelspec, metadata = {}) {
    const uri = { scheme: 'file', fsPath: `/home/me/${name}`, toString: () => `file:///home/me/${name}` };
    const made = {
        uri,
        notebookType: 'jupyter-notebook',
        isUntitled: false,
        metadata: { metadata: { kernelspec: { name: kernelspec } } }
    };
    const cell = {
        notebook: made,
        index: 0,
        metadata,
        document: { uri: { toString: () => `vscode-notebook-cell:/home/me/${name}#W0sZmlsZQ%3D%3D` } }
    };
    return { ...made, cell: Object.assign(cell, { notebook: made }), cellAt: () => cell };
}

/** Wait until the first cell of a notebook has a status. */
const told = (provider, { cell }) =>
    new Promise(resolve =>
        provider.onDidChangeCellStatusBarItems(
            () => provider.provideCellStatusBarItems(cell).length > 0 && resolve()
        )
    );

test('cells of a notebook on a replicated kernel have a status; the follower ends with the notebook', async () => {
    const mine = notebook('a.ipynb', 'replkernel');
    const execution = {
        msg_id: 'm',
        cell_id: mine.cell.document.uri.toString(),
        state: 'done',
        safety: 'durable',
        status: 'ok',
        ename: '',
        host: 'here',
        replica: 'r1',
        gpus: ['GPU-1'],
        wanted: 1,
        position: null,
        estimate_s: null,
        trouble: '',
        accepted_at: 1,
        began_at: 2,
        ended_at: 3
    };
    tells({
        kernel_id: 'k',
        now: 4,
        afresh: true,
        state: 'live',
        executions: [execution],
        kernel: { replicas: [{ replica: 'r1' }] }
    });
    state.settings.python = program;
    const context = { subscriptions: [] };
    activate(context);
    const [{ type, provider }] = state.providers;
    assert.equal(type, 'jupyter-notebook');
    const changed = told(provider, mine);
    events.open.fire(mine);
    await changed;
    const [item] = provider.provideCellStatusBarItems(mine.cell);
    assert.equal(item.text, '$(pass) Done · r1 · here · 1 GPU · 1.0 s · $(check) durable');

    vscode.window.activeNotebookEditor = { notebook: mine };
    const [{ provider: tree }] = state.trees;
    const roots = tree.getChildren();
    assert.deepEqual(
        roots.map(root => root.label),
        ['GPUs', 'Replicas', 'Hosts']
    );
    assert.deepEqual(
        tree.getChildren(roots[1]).map(entry => tree.getTreeItem(entry).label),
        ['r1']
    );

    let watcher;
    const gone = new Promise(resolve => {
        watcher = fs.watch(
            place,
            (_, name) => name === 'ended' && fs.readFileSync(ended).length > 0 && resolve()
        );
    });
    events.close.fire(mine);
    await gone;
    watcher.close();
    assert.match(fs.readFileSync(ended, 'utf8'), /-P -m replkernel.cli follow \/home\/me\/a.ipynb$/);
    assert.deepEqual(provider.provideCellStatusBarItems(mine.cell), []);
    context.subscriptions.forEach(part => part.dispose());
});

test('notebooks on other kernels are left alone', () => {
    const before = state.providers.length;
    fs.writeFileSync(program, '#!/bin/sh\ntouch "$0.started"\n', { mode: 0o700 });
    const context = { subscriptions: [] };
    activate(context);
    const { provider } = state.providers[before];
    const theirs = notebook('b.ipynb', 'python3');
    events.open.fire(theirs);
    assert.deepEqual(provider.provideCellStatusBarItems(theirs.cell), []);
    context.subscriptions.forEach(part => part.dispose());
});

test('a request for GPUs goes into the metadata of the cell, and is shown there', async () => {
    const before = state.providers.length;
    const context = { subscriptions: [] };
    activate(context);
    const mine = notebook('c.ipynb', 'python3', { metadata: { tags: ['x'] } });
    state.answer = '2';
    await state.commands.get('replkernel.askForGpus')(mine.cell);
    const [{ edits }] = state.edits.at(-1).edits;
    assert.deepEqual(edits[0], {
        index: 0,
        metadata: { metadata: { tags: ['x'], replkernel: { gpus: 2 } } }
    });
    mine.cell.metadata = edits[0].metadata;
    const { provider } = state.providers[before];
    assert.equal(provider.provideCellStatusBarItems(mine.cell)[0].text, '$(circuit-board) asks for 2 GPUs');
    state.answer = undefined;
    await state.commands.get('replkernel.askForGpus')(mine.cell);
    assert.equal(state.edits.length, 1, 'a question that is left changes nothing');
    context.subscriptions.forEach(part => part.dispose());
});

/** What the side bar explains, once it is one of these. */
const stands = wanted =>
    new Promise(resolve => {
        const look = () => state.contexts['replkernel.standing'] === wanted && resolve();
        state.contextSet = look;
        look();
    });

/** Activate it while no notebook is in front. */
function begin(context) {
    vscode.window.activeNotebookEditor = undefined;
    activate(context);
}

test('the side bar says what is missing: a kernel, the Jupyter extension, the program', async () => {
    const context = { subscriptions: [] };
    tells({ kernel_id: '', state: 'none' });
    state.settings.python = program;
    begin(context);
    await stands('none');
    const mine = notebook('d.ipynb', 'replkernel');
    vscode.window.activeNotebookEditor = { notebook: mine };
    events.open.fire(mine);
    await stands('idle');
    state.extensions.clear();
    events.active.fire();
    await stands('alone');
    state.extensions.add('ms-toolsai.jupyter');
    events.close.fire(mine);
    await stands('none');
    for (const broken of ['/nowhere/python', other('No module named replkernel')]) {
        state.settings.python = broken;
        events.open.fire(mine);
        await stands('missing');
        const { provider: tree } = state.trees.at(-1);
        assert.deepEqual(tree.getChildren(), [], 'an explanation is shown in the place of a tree');
        events.close.fire(mine);
        await stands('none');
    }
    for (const remote of [undefined, 'ssh-remote']) {
        vscode.env.remoteName = remote;
        await state.commands.get('replkernel.openSetting')();
    }
    assert.deepEqual(
        state.executed.map(([name]) => name),
        ['workbench.action.openSettings', 'workbench.action.openRemoteSettings']
    );
    state.settings.python = other('no space left on the device');
    events.open.fire(mine);
    await stands('told');
    assert.match(state.trees.at(-1).provider.getChildren()[0].detail, /no space left/);
    context.subscriptions.forEach(part => part.dispose());
});

/** A Python that ends with this complaint. */
function other(complaint) {
    const file = path.join(place, 'other');
    fs.writeFileSync(file, `#!/bin/sh\necho "$0: ${complaint}" >&2\nexit 1\n`, { mode: 0o700 });
    return file;
}

test('without the setting, the Python of the kernelspec tells', async () => {
    const data = path.join(place, 'jupyter');
    const spec = path.join(data, 'kernels', 'replkernel', 'kernel.json');
    fs.mkdirSync(path.dirname(spec), { recursive: true });
    fs.writeFileSync(spec, JSON.stringify({ argv: [program, '-P', '-m', 'replkernel.router', '-f', 'x'] }));
    process.env.JUPYTER_PATH = data;
    tells({ kernel_id: 'k', now: 4, state: 'live', hosts: [{ name: 'here' }] });
    state.settings.python = '';
    const context = { subscriptions: [] };
    begin(context);
    await stands('none');
    const mine = notebook('e.ipynb', 'replkernel');
    vscode.window.activeNotebookEditor = { notebook: mine };
    events.open.fire(mine);
    await stands('told');
    const { provider: tree } = state.trees.at(-1);
    const [, , hosts] = tree.getChildren();
    assert.equal(tree.getChildren(hosts)[0].label, 'here');
    delete process.env.JUPYTER_PATH;
    context.subscriptions.forEach(part => part.dispose());
});

test('an entry that gets something below it is another one, so that it unfolds', async () => {
    const context = { subscriptions: [] };
    tells(
        { kernel_id: 'k', now: 4, state: 'live', hosts: [{ name: 'here' }] },
        { kernel_id: 'k', now: 5, state: 'live', kernel: { replicas: [{ replica: 'r1' }] } }
    );
    state.settings.python = program;
    begin(context);
    await stands('none');
    const mine = notebook('f.ipynb', 'replkernel');
    vscode.window.activeNotebookEditor = { notebook: mine };
    const before = ['GPUs', 'Replicas', 'Hosts'].map((label, index) => idOf('', index, { label, below: [] }));
    events.open.fire(mine);
    await stands('told');
    const { provider: tree } = state.trees.at(-1);
    const items = tree.getChildren().map(entry => tree.getTreeItem(entry));
    assert.equal(items[0].id, before[0]);
    assert.notEqual(items[1].id, before[1]);
    assert.equal(new Set(items.map(item => item.id)).size, 3);
    context.subscriptions.forEach(part => part.dispose());
});
