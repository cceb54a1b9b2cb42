// A VS Code of the parts that the extension uses, so that it can be activated in node. It is not VS Code.
const Module = require('node:module');

class EventEmitter {
    listeners = new Set();
    event = listener => {
        this.listeners.add(listener);
        return { dispose: () => this.listeners.delete(listener) };
    };
    fire(value) {
        this.listeners.forEach(listener => listener(value));
    }
    dispose() {
        this.listeners.clear();
    }
}

const events = Object.fromEntries(
    ['open', 'change', 'close', 'active', 'settings'].map(name => [name, new EventEmitter()])
);
const state = {
    providers: [],
    trees: [],
    commands: new Map(),
    edits: [],
    answer: undefined,
    settings: {},
    extensions: new Set(['ms-toolsai.jupyter']),
    contexts: {},
    executed: []
};

const vscode = {
    EventEmitter,
    NotebookCellStatusBarAlignment: { Left: 1, Right: 2 },
    NotebookCellStatusBarItem: class {
        constructor(text, alignment) {
            Object.assign(this, { text, alignment });
        }
    },
    NotebookEdit: { updateCellMetadata: (index, metadata) => ({ index, metadata }) },
    ThemeIcon: class {
        constructor(id) {
            this.id = id;
        }
    },
    TreeItem: class {
        constructor(label, collapsibleState) {
            Object.assign(this, { label, collapsibleState });
        }
    },
    TreeItemCollapsibleState: { None: 0, Collapsed: 1, Expanded: 2 },
    WorkspaceEdit: class {
        edits = [];
        set(uri, edits) {
            this.edits.push({ uri, edits });
        }
    },
    commands: {
        executeCommand: async (name, ...values) => {
            if (name === 'setContext') {
                const [key, value] = values;
                state.contexts[key] = value;
                state.contextSet?.();
            } else {
                state.executed.push([name, ...values]);
            }
        },
        registerCommand: (name, run) => {
            state.commands.set(name, run);
            return { dispose: () => state.commands.delete(name) };
        }
    },
    env: { remoteName: undefined },
    extensions: { getExtension: id => (state.extensions.has(id) ? { id } : undefined) },
    notebooks: {
        registerNotebookCellStatusBarItemProvider: (type, provider) => {
            state.providers.push({ type, provider });
            return { dispose: () => undefined };
        }
    },
    window: {
        activeNotebookEditor: undefined,
        onDidChangeActiveNotebookEditor: events.active.event,
        registerTreeDataProvider: (id, provider) => {
            state.trees.push({ id, provider });
            return { dispose: () => undefined };
        },
        showInputBox: async options => {
            state.asked = options;
            return state.answer;
        }
    },
    workspace: {
        notebookDocuments: [],
        applyEdit: async edit => {
            state.edits.push(edit);
            return true;
        },
        getConfiguration: () => ({ get: (name, otherwise) => state.settings[name] ?? otherwise }),
        onDidChangeConfiguration: events.settings.event,
        onDidChangeNotebookDocument: events.change.event,
        onDidCloseNotebookDocument: events.close.event,
        onDidOpenNotebookDocument: events.open.event
    }
};

const load = Module._load;
Module._load = function (request, ...rest) {
    return request === 'vscode' ? vscode : load.call(this, request, ...rest);
};

module.exports = { vscode, state, events };
