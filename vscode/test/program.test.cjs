// Which program tells of a notebook (pure).
const assert = require('node:assert/strict');
const test = require('node:test');

const { isMissing, kernelFiles, pythonIn } = require('../out/program.js');

test("kernelspecs are looked for in Jupyter's places, in its order", () => {
    const files = (env, platform = 'linux') => kernelFiles('replkernel', env, '/home/me', platform);
    const tail = 'kernels/replkernel/kernel.json';
    const system = [`/usr/local/share/jupyter/${tail}`, `/usr/share/jupyter/${tail}`];
    assert.deepEqual(files({}), [`/home/me/.local/share/jupyter/${tail}`, ...system]);
    assert.deepEqual(files({ XDG_DATA_HOME: '/data' }), [`/data/jupyter/${tail}`, ...system]);
    assert.deepEqual(files({ JUPYTER_DATA_DIR: '/own', JUPYTER_PATH: '/a:b:/c' }), [
        `/a/${tail}`,
        `/c/${tail}`,
        `/own/${tail}`,
        ...system
    ]);
    assert.equal(files({}, 'darwin')[0], `/home/me/Library/Jupyter/${tail}`);
});

test('a notebook cannot lead elsewhere by the name of its kernelspec', () => {
    for (const name of ['../replkernel', 'replkernel/../x', '', '.replkernel', 'a'.repeat(101)]) {
        assert.deepEqual(kernelFiles(name, {}, '/home/me', 'linux'), []);
    }
});

test('the Python of a kernelspec counts if it is a path and starts this kernel', () => {
    const spec = (...argv) => pythonIn(JSON.stringify({ argv }));
    assert.equal(spec('/v/bin/python', '-P', '-m', 'replkernel.router', '-f', 'x'), '/v/bin/python');
    assert.equal(spec('python', '-m', 'replkernel.router'), '');
    assert.equal(spec('/v/bin/python', '-m', 'ipykernel_launcher'), '');
    assert.deepEqual(['', '[]', '{"argv": 7}', 'null'].map(pythonIn), ['', '', '', '']);
});

test('a Python without replkernel is told from other complaints', () => {
    const python = "ModuleNotFoundError: No module named 'replkernel'";
    assert.ok(isMissing(`/usr/bin/python3: Error while finding module specification (${python})`));
    assert.ok(isMissing('/usr/bin/python3: No module named replkernel'));
    assert.ok(!isMissing("No module named 'zmq'"));
});
