# Sends one packet of a kind, by no means but the kernel's: attempt.pl KIND ADDRESS PORT.
# It says that it tries, and then that it was sent or which call failed and how.
use strict;
use warnings;
use Socket qw(:all);

my ($kind, $to, $port) = @ARGV;
$| = 1;
print "trying $kind\n";
my $echo = pack('C C n n n', 8, 0, 0xf7ff, 0, 0);
my %kinds = (
	tcp       => sub { stream(AF_INET, pack_sockaddr_in($port, inet_pton(AF_INET, $to))) },
	tcp6      => sub { stream(AF_INET6, pack_sockaddr_in6($port, inet_pton(AF_INET6, $to))) },
	udp       => sub { datagram(AF_INET, SOCK_DGRAM, 0, pack_sockaddr_in($port, inet_pton(AF_INET, $to)), 'leak') },
	udp6      => sub { datagram(AF_INET6, SOCK_DGRAM, 0, pack_sockaddr_in6($port, inet_pton(AF_INET6, $to)), 'leak') },
	ping      => sub { datagram(AF_INET, SOCK_DGRAM, 1, pack_sockaddr_in(0, inet_pton(AF_INET, $to)), $echo) },
	icmp      => sub { datagram(AF_INET, SOCK_RAW, 1, pack_sockaddr_in(0, inet_pton(AF_INET, $to)), $echo) },
	icmp6     => sub { datagram(AF_INET6, SOCK_RAW, 58, pack_sockaddr_in6(0, inet_pton(AF_INET6, $to)), pack('C C n n n', 128, 0, 0, 0, 0)) },
	raw       => sub { datagram(AF_INET, SOCK_RAW, 253, pack_sockaddr_in(0, inet_pton(AF_INET, $to)), 'leak') },
	packet    => \&packet,
);

sub failed {
	printf "%s failed: errno %d, %s\n", $_[0], $!, $!;
	exit 1;
}

sub stream {
	my ($family, $address) = @_;
	socket(my $s, $family, SOCK_STREAM | SOCK_NONBLOCK, 0) or failed('socket');
	connect($s, $address) or $!{EINPROGRESS} or failed('connect');
}

sub datagram {
	my ($family, $type, $protocol, $address, $content) = @_;
	socket(my $s, $family, $type, $protocol) or failed('socket');
	setsockopt($s, SOL_SOCKET, SO_BROADCAST, 1);
	defined send($s, $content, 0, $address) or failed('send');
}

# Below the routes: a frame on every interface that there may be (packet(7)).
sub packet {
	my ($af_packet, $ipv4, $sent) = (17, 0x0800, 0);
	socket(my $s, $af_packet, SOCK_DGRAM, 0) or failed('socket');
	for my $interface (1 .. 64) {
		$sent++ if defined send($s, 'leak', 0, pack('S n i S C C a8', $af_packet, $ipv4, $interface, 0, 0, 6, "\xff" x 6));
	}
	$sent or failed('send');
}

use Errno;
$kinds{$kind}->();
print "sent\n";
