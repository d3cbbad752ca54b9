// The theme asks for the search index, which weighs more than most pages, whenever a page is opened. Here its request is
// held back until the reader turns to search: by pointer, by key, with a link that searches (?q=), or from a result whose
// words are to be marked (?h=).
(() => {
  "use strict";
  const { open, send } = XMLHttpRequest.prototype;
  const wanted = new Promise((resolve) => {
    const turned = ({ target }) => {
      if (target instanceof Element && target.closest("[data-md-component^=search], [for=__search]")) resolve();
    };
    for (const event of ["focusin", "pointerover"]) document.addEventListener(event, turned);
    const asked = new URLSearchParams(location.search);
    if (asked.has("q") || asked.has("h")) resolve();
  });

  XMLHttpRequest.prototype.open = function asked(method, address, ...rest) {
    this.frHeldBack = /\/search_index\.json$/.test(address);
    return open.call(this, method, address, ...rest);
  };
  XMLHttpRequest.prototype.send = function sent(...body) {
    if (this.frHeldBack) wanted.then(() => send.apply(this, body));
    else send.apply(this, body);
  };
})();
