# Adds mails to a public-inbox v2 archive with its own writer, which begins a new epoch by itself.
# perl fill_archive.pl NAME EPOCH_BYTES < mails, each after a line with its size in bytes. Prints how many were new.
use strict;
use warnings;
use PublicInbox::Config;
use PublicInbox::Eml;
use PublicInbox::V2Writable;

my ($name, $epoch_bytes) = @ARGV;
my $inbox = PublicInbox::Config->new->lookup_name($name) or die "no inbox $name\n";
my $writer = PublicInbox::V2Writable->new($inbox, { nproc => 1 });
$writer->{parallel} = 0;
$writer->{rotate_bytes} = $epoch_bytes;
binmode STDIN;
my $added = 0;
while (defined(my $size = <STDIN>)) {
    my $raw = '';
    while (length $raw < $size) {
        read(STDIN, $raw, $size - length $raw, length $raw) or die "input ended early\n";
    }
    $added++ if $writer->add(PublicInbox::Eml->new(\$raw));
}
$writer->done;
print "$added\n";
