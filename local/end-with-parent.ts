/**
 * Imported first by every process of the tree: when the process that started this one is gone (killed, so that it could not say goodbye), the channel
 * to it closes and this one ends as if it had been asked to. Nobody outlives the tree. Without a channel (started by hand) it does nothing.
 */
const endMs = 30_000;

if (process.channel) {
  process.once("disconnect", () => {
    process.kill(process.pid, "SIGTERM");
    setTimeout(() => process.kill(process.pid, "SIGKILL"), endMs).unref();
  });
  process.channel.unref();
}
