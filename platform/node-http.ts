/**
 * `node:http` for processes that have to stay small. An `import` of it reads every export, and that of `WebSocket` loads Node's own fetch with HTTP/2, TLS and
 * web streams: 6 MB in each runtime process, none of which uses them.
 */
export const { Agent, createServer, request } = process.getBuiltinModule("node:http");
