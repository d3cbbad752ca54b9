// Only `make serve` sends this: when the site has been built again, the page that is open shows the new one.
(() => {
  "use strict";
  let seen = null;
  setInterval(async () => {
    try {
      const now = (await fetch(location.pathname, { method: "HEAD" })).headers.get("Last-Modified");
      if (seen !== null && now !== null && now !== seen) location.reload();
      seen = now ?? seen;
    } catch {
      // The server has ended; if it comes back, so do its answers.
    }
  }, 1000);
})();
