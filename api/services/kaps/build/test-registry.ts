import { createHash } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import { createGzip } from "node:zlib";
import tar from "tar-stream";

/** An entry of a tarball as it stands there: hostile names, links and large files included. */
export interface TarEntry {
  name: string;
  content?: string | Buffer;
  linkname?: string;
  type?: "file" | "symlink" | "link" | "directory";
}

export interface TestRegistry {
  /** What a build process's environment must hold to use it: npm's own setting, in an npmrc of its own. */
  environment: NodeJS.ProcessEnv;
  publish(name: string, version: string, files: Record<string, string | Buffer>, manifest?: object): Promise<void>;
  publishTarball(name: string, version: string, entries: TarEntry[]): Promise<void>;
  /** Replaces the bytes behind a version while what was recorded of it stays. */
  tamper(name: string, version: string, files: Record<string, string>): Promise<void>;
  requests: string[];
  /** Stops or starts answering. */
  down(isDown: boolean): void;
  close(): Promise<void>;
}

/** A registry on a loopback port that speaks npm's protocol: package documents and tarballs. */
export async function startTestRegistry(): Promise<TestRegistry> {
  const versions = new Map<string, Map<string, { tarball: Buffer; integrity: string }>>();
  const requests: string[] = [];
  let isDown = false;
  const server = createServer((request, response) => {
    const path = decodeURIComponent(request.url ?? "");
    requests.push(path);
    if (isDown) return void request.socket.destroy();
    const [, tarballOf, version] = /^\/tarballs\/(.+)\/([^/]+)\.tgz$/.exec(path) ?? [];
    const tarball = tarballOf === undefined ? undefined : versions.get(tarballOf)?.get(version ?? "")?.tarball;
    if (tarball) return void response.end(tarball);
    const published = versions.get(path.slice(1));
    if (!published) return void response.writeHead(404).end("{}");
    const name = path.slice(1);
    const list = [...published].map(([each, { integrity }]) => [
      each,
      { name, version: each, dist: { integrity, tarball: `${origin}/tarballs/${name}/${each}.tgz` } },
    ]);
    response
      .setHeader("content-type", "application/json")
      .end(JSON.stringify({ name, "dist-tags": { latest: [...published.keys()].at(-1) }, versions: Object.fromEntries(list) }));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const home = mkdtempSync(join(tmpdir(), "kapstone-test-home-"));
  writeFileSync(join(home, ".npmrc"), `; only for this test\nregistry = ${origin}/\n`);

  function add(name: string, version: string, tarball: Buffer): void {
    const published = versions.get(name) ?? new Map();
    published.set(version, { tarball, integrity: `sha512-${createHash("sha512").update(tarball).digest("base64")}` });
    versions.set(name, published);
  }

  return {
    environment: { PATH: process.env.PATH, HOME: home },
    requests,
    async publish(name, version, files, manifest = {}) {
      add(name, version, await packTarball(packageEntries(name, version, files, manifest)));
    },
    async publishTarball(name, version, entries) {
      add(name, version, await packTarball(entries));
    },
    async tamper(name, version, files) {
      const published = versions.get(name)?.get(version);
      if (published) published.tarball = await packTarball(packageEntries(name, version, files, {}));
    },
    down(value) {
      isDown = value;
    },
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      rmSync(home, { recursive: true });
    },
  };
}

function packageEntries(name: string, version: string, files: Record<string, string | Buffer>, manifest: object): TarEntry[] {
  return [
    { name: "package/package.json", content: JSON.stringify({ name, version, main: "index.js", ...manifest }) },
    ...Object.entries(files).map(([path, content]) => ({ name: `package/${path}`, content })),
  ];
}

async function packTarball(entries: TarEntry[]): Promise<Buffer> {
  const pack = tar.pack();
  for (const { name, content = "", type = "file", linkname } of entries)
    pack.entry({ name, type, ...(linkname === undefined ? {} : { linkname }) }, type === "file" ? content : "");
  pack.finalize();
  return await buffer(pack.pipe(createGzip()));
}
