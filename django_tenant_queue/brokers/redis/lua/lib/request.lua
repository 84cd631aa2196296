-- What a claim took is found again by its request id: the marker says how many tokens it may have given out, and until when that counts.
local SHORTEST_MS = 30000 -- the key's own end only frees memory
local function marker_of(request)
  return root .. 'request:' .. request
end

local function remember_request(request, limit)
  call('SET', marker_of(request), string.format('%.0f %.0f', limit, now + 2 * lease_us), 'PX', math.max(SHORTEST_MS, math.floor(lease_us / 500)))
end

-- token, record, token, record, ... of what is still held under the request's first `limit` tokens; whether any token is in use
local function held_under(request, limit)
  local taken, used = {}, false
  for first = 0, limit - 1, 500 do
    local tokens = {}
    for i = first, math.min(limit, first + 500) - 1 do tokens[#tokens + 1] = request .. '.' .. i end
    for _, lease in ipairs(leased(tokens)) do
      used = true
      if not lease.postponed then
        taken[#taken + 1] = lease.token
        taken[#taken + 1] = lease.record
      end
    end
  end
  return taken, used
end

-- What a request took and still holds, nil when it is a new one. Without its marker (two lease times later) a request is known by its
-- leases, when the caller says how many it may have: a token is never given out while it is in use.
local function taken_by(request, asked)
  local limit, keep_until = string.match(call('GET', marker_of(request)) or '', '^(%d+) (%d+)$')
  if limit and tonumber(keep_until) > now then return (held_under(request, tonumber(limit))) end
  local taken, used = held_under(request, asked)
  return used and taken or nil
end
