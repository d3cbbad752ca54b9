// The page's side of the Worker: questions and answers, with a deadline after which the Worker is ended. A file that
// crashes or hangs it is refused, and costs the others no more than being opened again.

export class Refused extends Error {}

// A Worker from the network is bound by a header alone, which many hosts cannot send. One that is made from a text
// inherits the page's policy, so that it reaches no other host than the page does.
function bound(script) {
  const address = URL.createObjectURL(new Blob([`import ${JSON.stringify(script)};`], { type: "text/javascript" }));
  const worker = new Worker(address, { type: "module" });
  worker.addEventListener("message", () => URL.revokeObjectURL(address), { once: true });
  return worker;
}

export class Reader {
  constructor(given) {
    this.given = given;
    this.sources = new Map();
    this.turn = Promise.resolve();
    this.start();
  }

  start() {
    this.worker = bound(new URL("worker.js", import.meta.url).href);
    this.worker.addEventListener("message", ({ data: { found, refused } }) => {
      if (refused === undefined) this.answer.resolve(found);
      else this.answer.reject(new Refused(refused));
    });
    let up = false;
    const broken = (event) => {
      event.preventDefault();
      const why = new Refused(`the reader stopped${event.message ? `: ${String(event.message).slice(0, 200)}` : ""}`);
      // One that did not start would not start again.
      if (up) this.end(why);
      else this.answer.reject(why);
    };
    this.worker.addEventListener("error", broken);
    this.worker.addEventListener("messageerror", broken);
    this.ready = this.post({ kind: "given", given: this.given });
    this.ready.then(() => { up = true; }, () => {});
  }

  post(message) {
    this.answer = Promise.withResolvers();
    this.worker.postMessage(message);
    return this.answer.promise;
  }

  // End the Worker; whoever waits for it is told why.
  end(error) {
    const { answer } = this;
    this.worker.terminate();
    this.start();
    answer.reject(error);
  }

  // The time that a Worker takes to start counts for nothing: it may have to be loaded.
  async ask(message) {
    await this.ready;
    const { seconds } = this.given.caps;
    const timer = setTimeout(() => this.end(new Refused(`it took longer than ${seconds} seconds`)), 1000 * seconds);
    try {
      return await this.post(message);
    } finally {
      clearTimeout(timer);
    }
  }

  // One question after the other, so that a deadline ends the one that is late.
  /** @returns {Promise<any>} */
  inTurn(task) {
    const done = this.turn.then(task);
    this.turn = done.catch(() => {});
    return done;
  }

  // Open a file (`blob`) or a published one (`address`) under a key.
  open(key, source) {
    return this.inTurn(async () => {
      const found = await this.ask({ kind: "open", key, ...source });
      this.sources.set(key, source);
      return found;
    });
  }

  close(key) {
    this.sources.delete(key);
  }

  compare(a, b) {
    return this.pair("compare", a, b);
  }

  explain(a, b) {
    return this.pair("explain", a, b);
  }

  // Both are opened where the Worker has them no more; A last, so that it stays when another file is put beside it.
  pair(kind, a, b) {
    return this.inTurn(async () => {
      for (const key of [b, a]) await this.ask({ kind: "open", key, ...this.sources.get(key) });
      return this.ask({ kind, a, b });
    });
  }
}
