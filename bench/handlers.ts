/** What the runtime and its peers are asked, by the end of the path. `sql` is a number of selects one after another in one request. */
export const paths = { json: "/json", echo: "/echo", stream: "/stream", sql: "/sql", outward: "/outward" } as const;
/** The header that names what `/outward` fetches. */
export const outwardTo = "x-bench-to";

/** Streamed by `/stream`: 10 MB in pieces of 64 KB. */
export const streamed = { pieces: 160, pieceBytes: 65_536 };
export const selects = 100;
export const select = "select id, name from bench_rows where id = $1";

/** The program all runtimes with the web's API serve, as the body of a function of `db` that gives the handler. */
const program = `
  const piece = new Uint8Array(${streamed.pieceBytes}).fill(97);
  return async (request) => {
    const { url } = request;
    if (url.endsWith("${paths.json}")) return Response.json({ hello: "world" });
    if (url.endsWith("${paths.echo}")) return new Response(await request.arrayBuffer());
    if (url.endsWith("${paths.outward}")) return new Response(await (await fetch(request.headers.get("${outwardTo}"))).text());
    if (url.endsWith("${paths.sql}")) {
      let row;
      for (let at = 0; at < ${selects}; at++) row = (await db.query(${JSON.stringify(select)}, [at % 10])).rows[0];
      return Response.json(row);
    }
    let left = ${streamed.pieces};
    return new Response(new ReadableStream({
      pull(controller) {
        if (left-- > 0) controller.enqueue(piece.slice());
        else controller.close();
      },
    }));
  };`;

/** As a module of a kap. */
export const kapProgram = `const { db } = globalThis[Symbol.for("kap")]; exports.default = { fetch: (() => {${program}})() };`;

/** As workerd's main module. Workers make nothing outside of a request, so the handler is made with the first one. */
export const workerdProgram = `let handler; export default { fetch(request) { handler ??= (() => {${program}})(); return handler(request); } };`;

/** As a Deno program that says its address. */
export const denoProgram = `const handler = (() => {${program}})();
Deno.serve({ port: 0, hostname: "127.0.0.1", onListen: ({ port }) => console.log("http://127.0.0.1:" + port) }, handler);`;
