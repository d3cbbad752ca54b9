// A Worker's side of a Reader (reader.js): each question is a task by its kind, and gets one answer.

export function answerWith(tasks) {
  // A reader of parquet that has failed at one column leaves promises of others behind.
  self.addEventListener("unhandledrejection", (event) => event.preventDefault());
  self.addEventListener("message", async ({ data }) => {
    try {
      self.postMessage({ found: await tasks[data.kind](data) });
    } catch (error) {
      // What a parser says of hostile bytes is data too: the page shows it as text, and not much of it.
      self.postMessage({ refused: String(error?.message ?? error).slice(0, 300) });
    }
  });
}
