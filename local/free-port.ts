import { randomInt } from "node:crypto";
import { createServer } from "node:net";

type Probe = { port: number } | { port: null; reason: string };

/** Below the ports that systems give to whoever asks for any (32768 and up), each connection included: none of these is given away before it is listened on. */
const quietPorts = { from: 20_000, below: 30_000 };
const quietTries = 20;

/** Whether a program could listen on `host`:`port` now; the port it got (a free one for 0), or null with the system's reason. */
export async function probePort(host: string, port: number): Promise<Probe> {
  for (let tries = port === 0 ? quietTries : 0; tries > 0; tries--) {
    const found = await probe(host, randomInt(quietPorts.from, quietPorts.below));
    if (found.port !== null) return found;
  }
  return probe(host, port);
}

function probe(host: string, port: number): Promise<Probe> {
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
