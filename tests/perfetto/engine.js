// Runs Perfetto's trace_processor, which is built for a browser's worker, under Node and offline.
// Usage: node engine.js ENGINE_FOLDER < requests > replies
// Both are bytes of perfetto.protos.TraceProcessorRpcStream.
'use strict';
const fs = require('node:fs');
const path = require('node:path');
const vm = require('node:vm');

const folder = process.argv[2];
const node = process;

// What a worker has. Node is hidden, or the engine would take itself for a Node program.
globalThis.self = globalThis;
globalThis.WorkerGlobalScope = class {};
globalThis.importScripts = () => {};
globalThis.location = {href: 'http://localhost/engine_bundle.js', pathname: '/engine_bundle.js'};
globalThis.XMLHttpRequest = class {
  open(method, url) {
    this.file = path.join(folder, path.basename(url));
  }
  send() {
    const bytes = fs.readFileSync(this.file);
    this.status = 200;
    this.response = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
  }
};
console.log = console.warn = (...words) => fs.writeSync(2, words.join(' ') + '\n');
Object.defineProperty(globalThis, 'process', {value: undefined, configurable: true});

const requests = new Uint8Array(fs.readFileSync(0));
const file = path.join(folder, 'engine_bundle.js');
vm.runInThisContext(fs.readFileSync(file, 'utf8'), {filename: file});

// The engine starts within this turn of the event loop; after it each request is answered at once.
setImmediate(() => {
  const port = {postMessage: (reply) => fs.writeSync(1, reply)};
  self.onmessage({data: port});
  port.onmessage({data: requests});
  node.exit(0);
});
