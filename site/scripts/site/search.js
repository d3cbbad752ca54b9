// The theme asks for the search index, which weighs more than most pages, and for the script that searches it whenever a
// page is opened. Here both are held back until the reader turns to search: by pointer, by key, with a link that searches
// (?q=), or from a result whose words are to be marked (?h=).
const { open, send } = XMLHttpRequest.prototype;
const wanted = new Promise((resolve) => {
  const turned = ({ target }) => {
    if (target instanceof Element && target.closest("[data-md-component^=search], [for=__search]")) resolve(true);
  };
  for (const event of ["focusin", "pointerover"]) document.addEventListener(event, turned);
  const asked = new URLSearchParams(location.search);
  if (asked.has("q") || asked.has("h")) resolve(true);
});

XMLHttpRequest.prototype.open = function asked(/** @type {any[]} */ ...call) {
  this.frHeldBack = /\/search_index\.json$/.test(call[1]);
  return open.apply(this, /** @type {any} */ (call));
};
XMLHttpRequest.prototype.send = function sent(...body) {
  if (this.frHeldBack) wanted.then(() => send.apply(this, body));
  else send.apply(this, body);
};

const { Worker: Started } = globalThis;
// A Worker that is started, and given what it was sent meanwhile, once it is wanted.
class HeldBack extends EventTarget {
  constructor(address) {
    super();
    this.started = wanted.then(() => {
      const worker = new Started(address);
      worker.addEventListener("message", ({ data }) => this.dispatchEvent(new MessageEvent("message", { data })));
      return worker;
    });
  }

  postMessage(message) {
    this.started.then((worker) => worker.postMessage(message));
  }
}
globalThis.Worker = /** @type {any} */ (new Proxy(Started, {
  construct: (_, [address, ...more]) => (/\/workers\/search/.test(address) ? new HeldBack(address) : new Started(address, ...more)),
}));

export {};
