import { createServer } from "node:net";

/** Whether a program could listen on `host`:`port` now; the port it got (a free one for 0), or null with the system's reason. */
export function probePort(host: string, port: number): Promise<{ port: number } | { port: null; reason: string }> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", (error: NodeJS.ErrnoException) => resolve({ port: null, reason: error.code ?? error.message }));
    server.listen({ host, port, exclusive: true }, () => {
      const address = server.address();
      const got = address !== null && typeof address === "object" ? address.port : port;
      server.close(() => resolve({ port: got }));
    });
  });
}
